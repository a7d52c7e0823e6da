#include <windows.h>

#include "platform/usage.hpp"

namespace ddpdiag::platform {
namespace {

// Windows counts in units of 100 ns.
std::int64_t nanoseconds(const FILETIME& kernel, const FILETIME& user) noexcept {
    const auto ticks = [](const FILETIME& time) {
        return static_cast<std::int64_t>((std::uint64_t{time.dwHighDateTime} << 32U) | time.dwLowDateTime);
    };
    return (ticks(kernel) + ticks(user)) * 100;
}

}  // namespace

std::int64_t thread_cpu_ns() noexcept {
    FILETIME created{};
    FILETIME exited{};
    FILETIME kernel{};
    FILETIME user{};
    const BOOL known = ::GetThreadTimes(::GetCurrentThread(), &created, &exited, &kernel, &user);
    return known != 0 ? nanoseconds(kernel, user) : -1;
}

// Windows does not tell what a thread waits for.
DiskWait::DiskWait() noexcept = default;
DiskWait::~DiskWait() = default;
bool DiskWait::now() const noexcept {
    return file_ >= 0;
}

// Windows tells a program neither how long a thread waited for a core, nor its page faults that read from a
// disk, nor a load average.
Usage usage() noexcept {
    Usage found;
    FILETIME created{};
    FILETIME exited{};
    FILETIME kernel{};
    FILETIME user{};
    found.thread_cpu_ns = thread_cpu_ns();
    if (::GetProcessTimes(::GetCurrentProcess(), &created, &exited, &kernel, &user) != 0) {
        found.process_cpu_ns = nanoseconds(kernel, user);
    }
    return found;
}

}  // namespace ddpdiag::platform
