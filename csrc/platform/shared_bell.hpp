// Wakes a thread of another process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace ddpdiag::platform {

// The rings so far are counted in a word that lies in memory which all share. Each bell has one process that waits
// at it; any may ring.
class SharedBell {
public:
    // For the process that waits. `name`: that of the memory which holds the word. Throws SystemError.
    [[nodiscard]] static SharedBell create(const std::string& name);
    // For a process that rings what another one has created.
    [[nodiscard]] static SharedBell open(const std::string& name);

    SharedBell(SharedBell&& other) noexcept;
    SharedBell& operator=(SharedBell&& other) noexcept = delete;
    SharedBell(const SharedBell&) = delete;
    SharedBell& operator=(const SharedBell&) = delete;
    ~SharedBell();  // NOLINT(performance-trivially-destructible): not on every system

    // Sleeps until somebody rings, if `rings` is still `seen`, and at most for `limit`. May return early.
    void wait(const std::atomic<std::uint32_t>& rings, std::uint32_t seen,
              std::chrono::milliseconds limit) const noexcept;
    // Wakes who sleeps. The caller has counted the ring.
    void wake(std::atomic<std::uint32_t>& rings) const noexcept;

private:
    explicit SharedBell(void* handle) noexcept : handle_(handle) {}
    // Of a system on which waiting at an address does not cross processes.
    [[maybe_unused]] void* handle_;
};

}  // namespace ddpdiag::platform
