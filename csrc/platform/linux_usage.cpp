#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <ctime>
#include <system_error>

#include "platform/usage.hpp"

namespace ddpdiag::platform {
namespace {

std::int64_t cpu_ns(clockid_t clock) noexcept {
    timespec used{};
    if (::clock_gettime(clock, &used) != 0) {
        return -1;
    }
    return static_cast<std::int64_t>(used.tv_sec) * 1'000'000'000 + used.tv_nsec;
}

// "CPU DELAY SLICES": the number in the middle, in nanoseconds. -1 if the text is something else.
std::int64_t second_number(const char* begin, const char* end) noexcept {
    std::int64_t value = -1;
    const auto first = std::from_chars(begin, end, value);
    if (first.ec != std::errc() || first.ptr == end) {
        return -1;
    }
    const auto second = std::from_chars(first.ptr + 1, end, value);
    return second.ec == std::errc() && value >= 0 ? value : -1;
}

// The calling thread's /proc/thread-self/schedstat, kept open: opening it costs far more than reading it.
class RunDelay {
public:
    RunDelay() = default;
    RunDelay(const RunDelay&) = delete;
    RunDelay& operator=(const RunDelay&) = delete;
    ~RunDelay() { close(); }

    [[nodiscard]] std::int64_t read() noexcept {
        // A forked child inherits its parent's file, which tells of the parent's thread.
        if (const pid_t process = ::getpid(); process != process_) {
            close();
            process_ = process;
            file_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
        }
        if (file_ < 0) {
            return -1;
        }
        std::array<char, 96> text{};
        const ssize_t length = ::pread(file_, text.data(), text.size(), 0);
        return length > 0 ? second_number(text.data(), text.data() + static_cast<std::size_t>(length)) : -1;
    }

private:
    void close() noexcept {
        if (file_ >= 0) {
            ::close(file_);
            file_ = -1;
        }
    }

    pid_t process_ = 0;
    int file_ = -1;
};

}  // namespace

Usage usage() noexcept {
    thread_local RunDelay run_delay;
    Usage found;
    found.thread_cpu_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    found.run_delay_ns = run_delay.read();
    found.process_cpu_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (rusage counted{}; ::getrusage(RUSAGE_THREAD, &counted) == 0) {
        // NOLINTBEGIN(cppcoreguidelines-pro-type-union-access): glibc declares each of its fields as a union
        found.major_faults = counted.ru_majflt;
        found.involuntary_switches = counted.ru_nivcsw;
        // NOLINTEND(cppcoreguidelines-pro-type-union-access)
    }
    if (struct sysinfo machine{}; ::sysinfo(&machine) == 0) {
        constexpr auto one = static_cast<std::int64_t>(std::uint64_t{1} << unsigned{SI_LOAD_SHIFT});
        found.load_milli = static_cast<std::int64_t>(machine.loads[0]) * 1000 / one;
    }
    return found;
}

}  // namespace ddpdiag::platform
