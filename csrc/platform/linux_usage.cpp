#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <ctime>
#include <string_view>
#include <system_error>

#include "platform/platform.hpp"
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

// The kernel renews it every 5 s, and looks through all devices and swap files to tell it.
class MachineLoad {
public:
    [[nodiscard]] std::int64_t read() noexcept {
        constexpr std::int64_t renewed_after_ns = 1'000'000'000;
        const std::int64_t now = monotonic_ns();
        if (now >= due_ns_) {
            due_ns_ = now + renewed_after_ns;
            if (struct sysinfo machine{}; ::sysinfo(&machine) == 0) {
                constexpr auto one = static_cast<std::int64_t>(std::uint64_t{1} << unsigned{SI_LOAD_SHIFT});
                milli_ = static_cast<std::int64_t>(machine.loads[0]) * 1000 / one;
            }
        }
        return milli_;
    }

private:
    std::int64_t due_ns_ = 0;
    std::int64_t milli_ = Usage{}.load_milli;
};

}  // namespace

std::int64_t thread_cpu_ns() noexcept {
    return cpu_ns(CLOCK_THREAD_CPUTIME_ID);
}

// Opening the file costs more than reading it. That of the whole process tells the state of its first thread, too, but
// adds up the times of all threads before.
DiskWait::DiskWait() noexcept {
    std::array<char, 64> path{};
    constexpr std::string_view before = "/proc/self/task/";
    constexpr std::string_view behind = "/stat";
    auto* end = std::ranges::copy(before, path.data()).out;
    end = std::to_chars(end, path.data() + path.size(), ::getpid()).ptr;
    std::ranges::copy(behind, end);
    file_ = ::open(path.data(), O_RDONLY | O_CLOEXEC);
}

DiskWait::~DiskWait() {
    if (file_ >= 0) {
        ::close(file_);
    }
}

// The state stands behind the command's name, which may hold anything: proc_pid_stat(5). D: it sleeps and cannot be
// woken, because the kernel reads or writes for it. A thread that faults a page in from a file is in it as well, but
// then Python's interpreter lock is not free for whoever asks.
bool DiskWait::now() const noexcept {
    std::array<char, 64> text{};
    const ssize_t length = file_ < 0 ? -1 : ::pread(file_, text.data(), text.size(), 0);
    const std::string_view seen(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    const std::size_t name = seen.rfind(')');
    return name != std::string_view::npos && seen.substr(name).starts_with(") D");
}

Usage usage() noexcept {
    thread_local RunDelay run_delay;
    Usage found;
    found.thread_cpu_ns = thread_cpu_ns();
    found.run_delay_ns = run_delay.read();
    found.process_cpu_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (rusage counted{}; ::getrusage(RUSAGE_THREAD, &counted) == 0) {
        // NOLINTBEGIN(cppcoreguidelines-pro-type-union-access): glibc declares each of its fields as a union
        found.major_faults = counted.ru_majflt;
        found.involuntary_switches = counted.ru_nivcsw;
        // NOLINTEND(cppcoreguidelines-pro-type-union-access)
    }
    thread_local MachineLoad load;
    found.load_milli = load.read();
    return found;
}

}  // namespace ddpdiag::platform
