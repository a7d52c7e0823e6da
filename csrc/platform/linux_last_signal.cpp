#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>

#include "platform/last_signal.hpp"
#include "platform/platform.hpp"

namespace ddpdiag::platform {
namespace {

using Action = struct sigaction;

// What ends a process by default, and what launchers, job schedulers, terminals and broken code send. Not SIGINT, of
// which Python makes an exception, and not SIGBUS, which the guard of mapped files handles.
constexpr std::array noted{SIGTERM, SIGHUP,  SIGQUIT, SIGXCPU, SIGUSR1,
                           SIGUSR2, SIGABRT, SIGSEGV, SIGFPE,  SIGILL};

constexpr std::size_t text_limit = 1024;

// Signal handlers are per process, so what they read is, too. A handler reads it without a lock: `owner` is 0 while it
// changes.
struct Note {
    std::mutex mutex;
    std::atomic<pid_t> owner{0};
    std::array<char, PATH_MAX> path{};
    std::array<char, text_limit> text{};
    std::atomic<std::size_t> text_size{0};
    std::terminate_handler before = nullptr;
    std::atomic<void (*)()> call{nullptr};
};

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
constinit Note last;

template <class Number>
void add(std::array<char, 64>& line, std::size_t& size, Number number, char after) noexcept {
    const auto written = std::to_chars(line.data() + size, line.data() + line.size() - 1, number);
    *written.ptr = after;
    size = static_cast<std::size_t>(written.ptr - line.data()) + 1;
}

void put(int file, const char* data, std::size_t size) noexcept {
    // Nobody is there to hear of a full disk.
    if (::write(file, data, size) < 0) {
        return;
    }
}

// Only what a signal handler may call.
void write_note(int signal) noexcept {
    // A forked child has its parent's handlers, and its end is not the rank's.
    const pid_t process = ::getpid();
    if (last.owner.load(std::memory_order_acquire) != process) {
        return;
    }
    const int file =
        ::open(last.path.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (file < 0) {
        return;
    }
    std::array<char, 64> line{};
    std::size_t size = 0;
    add(line, size, process, ' ');
    add(line, size, signal, ' ');
    add(line, size, monotonic_ns(), '\n');
    put(file, line.data(), size);
    put(file, last.text.data(), last.text_size.load(std::memory_order_acquire));
    ::close(file);
}

// Whether the instruction that did it does it again. What a process, a terminal or a limit sent comes once.
bool comes_again(int signal, const siginfo_t& info) noexcept {
    return info.si_code > 0 && (signal == SIGSEGV || signal == SIGFPE || signal == SIGILL);
}

// The system has put the default action back.
void on_signal(int signal, siginfo_t* info, void* /*context*/) {
    const int error = errno;
    write_note(signal);
    errno = error;
    if (!comes_again(signal, *info)) {
        ::raise(signal);
    }
}

[[noreturn]] void on_terminate() {
    if (const auto thrown = std::current_exception()) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::exception& error) {
            const std::string_view text = std::string_view(error.what()).substr(0, last.text.size());
            std::ranges::copy(text, last.text.begin());
            last.text_size.store(text.size(), std::memory_order_release);
        } catch (...) {
            last.text_size.store(0, std::memory_order_release);
        }
    }
    // The exchange: a second thread that fails meanwhile does not call it again.
    if (auto* const call = last.call.exchange(nullptr, std::memory_order_acq_rel);
        call != nullptr && last.owner.load(std::memory_order_acquire) == ::getpid()) {
        call();
    }
    last.before();
    std::abort();
}

// Under the mutex. Whoever handles a signal already, or ignores it, keeps it.
void install() noexcept {
    for (const int signal : noted) {
        Action now{};
        if (::sigaction(signal, nullptr, &now) != 0 ||
            (static_cast<unsigned>(now.sa_flags) & static_cast<unsigned>(SA_SIGINFO)) != 0 ||
            now.sa_handler != SIG_DFL) {
            continue;
        }
        Action ours{};
        ours.sa_sigaction = &on_signal;
        // Without SA_NODEFER, what was raised in the handler would come after its end only: later than other code.
        ours.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
        ::sigemptyset(&ours.sa_mask);
        ::sigaction(signal, &ours, nullptr);
    }
    if (last.before == nullptr) {
        last.before = std::set_terminate(&on_terminate);
    }
}

}  // namespace

void note_last_signal(const std::filesystem::path& note) noexcept {
    const std::lock_guard lock(last.mutex);
    last.owner.store(0, std::memory_order_release);
    const std::string& path = note.native();
    if (path.empty() || path.size() >= last.path.size()) {
        return;
    }
    std::copy_n(path.c_str(), path.size() + 1, last.path.data());
    last.text_size.store(0, std::memory_order_relaxed);
    last.owner.store(::getpid(), std::memory_order_release);
    install();
}

void before_terminate(void (*call)()) noexcept {
    last.call.store(call, std::memory_order_release);
}

void forget_last_signal(const std::filesystem::path& note) noexcept {
    const std::lock_guard lock(last.mutex);
    if (note.native() == last.path.data()) {
        last.owner.store(0, std::memory_order_release);
    }
}

}  // namespace ddpdiag::platform
