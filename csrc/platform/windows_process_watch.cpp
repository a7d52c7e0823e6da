#include <windows.h>

#include <string>
#include <system_error>
#include <utility>

#include "platform/platform.hpp"
#include "platform/process_watch.hpp"

namespace ddpdiag::platform {

ProcessWatch::ProcessWatch(std::uint64_t process)
    : process_(process),
      handle_(
          reinterpret_cast<std::intptr_t>(::OpenProcess(SYNCHRONIZE, FALSE, static_cast<DWORD>(process)))) {
    if (handle_ == 0) {
        const DWORD error = ::GetLastError();
        handle_ = -1;
        throw SystemError(error == ERROR_ACCESS_DENIED ? Cause::permission : Cause::not_found,
                          "cannot watch process " + std::to_string(process) + ": " +
                              std::system_category().message(static_cast<int>(error)));
    }
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : process_(other.process_), handle_(std::exchange(other.handle_, -1)), started_(other.started_) {}

ProcessWatch::~ProcessWatch() {
    if (handle_ != -1) {
        ::CloseHandle(reinterpret_cast<HANDLE>(handle_));
    }
}

bool ProcessWatch::runs() const noexcept {
    return ::WaitForSingleObject(reinterpret_cast<HANDLE>(handle_), 0) == WAIT_TIMEOUT;
}

}  // namespace ddpdiag::platform
