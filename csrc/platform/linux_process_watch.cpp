#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "platform/platform.hpp"
#include "platform/process_watch.hpp"

namespace ddpdiag::platform {
namespace {

#ifdef SYS_pidfd_open
constexpr long pidfd_open_number = SYS_pidfd_open;
#else
constexpr long pidfd_open_number = 434;  // the same on every processor
#endif

// Clock ticks from boot to its start; 0 if it has ended.
std::uint64_t start_of(std::uint64_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string line;
    std::getline(file, line);
    // The program's name, in brackets, may hold anything.
    const std::size_t bracket = line.rfind(')');
    if (bracket == std::string::npos) {
        return 0;
    }
    std::istringstream fields(line.substr(bracket + 1));
    std::string state;
    fields >> state;
    std::string field;
    for (int i = 0; i < 18; ++i) {
        fields >> field;
    }
    std::uint64_t started = 0;
    fields >> started;
    return state == "Z" || state == "X" ? 0 : started;
}

}  // namespace

ProcessWatch::ProcessWatch(std::uint64_t process)
    : process_(process), handle_(::syscall(pidfd_open_number, process, 0)) {
    const int error = errno;
    // Older kernels and some containers' filters have no such call.
    if (handle_ < 0) {
        started_ = start_of(process);
        if (error == ESRCH || started_ == 0) {
            throw SystemError(Cause::not_found, "there is no process " + std::to_string(process));
        }
    }
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : process_(other.process_), handle_(std::exchange(other.handle_, -1)), started_(other.started_) {}

ProcessWatch::~ProcessWatch() {
    if (handle_ >= 0) {
        ::close(static_cast<int>(handle_));
    }
}

bool ProcessWatch::runs() const noexcept {
    if (handle_ >= 0) {
        pollfd ended{.fd = static_cast<int>(handle_), .events = POLLIN, .revents = 0};
        return ::poll(&ended, 1, 0) <= 0;
    }
    try {
        return start_of(process_) == started_;
    } catch (...) {
        return true;  // no memory to find out
    }
}

}  // namespace ddpdiag::platform
