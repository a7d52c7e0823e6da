// Threads of ours beside the program's.
#pragma once

#include <thread>
#include <utility>

#ifndef _WIN32
#include <csignal>
#endif

namespace ddpdiag::platform {

// Blocks the process's signals on the calling thread while it lives; a thread that is started meanwhile inherits that for
// good. Faults and abort() still reach their handlers. Windows sends no signals to threads, and does nothing.
class BlockedSignals {
public:
    BlockedSignals() noexcept;
    ~BlockedSignals();
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;
#ifndef _WIN32

private:
    sigset_t before_{};
#endif
};

// As std::thread's constructor. The thread leaves the process's signals to the program's own threads from its first
// instruction on: one that the program blocks and waits for must find no thread that takes it.
template <class... Parts>
[[nodiscard]] std::thread start_beside(Parts&&... parts) {
    const BlockedSignals blocked;
    return std::thread(std::forward<Parts>(parts)...);
}

}  // namespace ddpdiag::platform
