#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "platform/shared_bell.hpp"

namespace ddpdiag::platform {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

SharedBell SharedBell::create(const std::string& /*name*/) {
    return SharedBell(nullptr);
}

SharedBell SharedBell::open(const std::string& /*name*/) {
    return SharedBell(nullptr);
}

SharedBell::SharedBell(SharedBell&& other) noexcept = default;

SharedBell::~SharedBell() = default;

// Not the private futex: its waiters are those of one process.
// NOLINTBEGIN(readability-convert-member-functions-to-static): Windows needs the handle
void SharedBell::wait(const std::atomic<std::uint32_t>& rings, std::uint32_t seen,
                      std::chrono::milliseconds limit) const noexcept {
    const auto ms = static_cast<long>(limit.count());
    const timespec time{.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000};
    ::syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void SharedBell::wake(std::atomic<std::uint32_t>& rings) const noexcept {
    ::syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
// NOLINTEND(readability-convert-member-functions-to-static)

}  // namespace ddpdiag::platform
