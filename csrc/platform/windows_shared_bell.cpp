#include <windows.h>

#include <string>
#include <system_error>
#include <utility>

#include "platform/platform.hpp"
#include "platform/shared_bell.hpp"

namespace ddpdiag::platform {
namespace {

// It stays set until the one who waits has seen it, so that no ring is lost.
HANDLE checked(HANDLE event) {
    const DWORD error = ::GetLastError();
    if (event == nullptr) {
        throw SystemError(Cause::other, "cannot open an event to wait for another process: " +
                                            std::system_category().message(static_cast<int>(error)));
    }
    return event;
}

}  // namespace

SharedBell SharedBell::create(const std::string& name) {
    return SharedBell(checked(::CreateEventA(nullptr, FALSE, FALSE, (name + "-bell").c_str())));
}

SharedBell SharedBell::open(const std::string& name) {
    return SharedBell(checked(::OpenEventA(EVENT_MODIFY_STATE, FALSE, (name + "-bell").c_str())));
}

SharedBell::SharedBell(SharedBell&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

SharedBell::~SharedBell() {
    if (handle_ != nullptr) {
        ::CloseHandle(handle_);
    }
}

void SharedBell::wait(const std::atomic<std::uint32_t>& rings, std::uint32_t seen,
                      std::chrono::milliseconds limit) const noexcept {
    if (rings.load() == seen) {
        ::WaitForSingleObject(handle_, static_cast<DWORD>(limit.count()));
    }
}

void SharedBell::wake(std::atomic<std::uint32_t>& /*rings*/) const noexcept {
    ::SetEvent(handle_);
}

}  // namespace ddpdiag::platform
