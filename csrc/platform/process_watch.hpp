// Tells whether another process of this host still runs.
#pragma once

#include <cstdint>
#include <string>

namespace ddpdiag::platform {

// It means the process that had this number when the watch began, and not a later one with the same number.
class ProcessWatch {
public:
    // Throws SystemError if there is no such process, or it may not be watched.
    explicit ProcessWatch(std::uint64_t process);
    ProcessWatch(ProcessWatch&& other) noexcept;
    ProcessWatch& operator=(ProcessWatch&& other) noexcept = delete;
    ProcessWatch(const ProcessWatch&) = delete;
    ProcessWatch& operator=(const ProcessWatch&) = delete;
    ~ProcessWatch();

    // False once it has ended, even if its parent has not collected it yet.
    [[nodiscard]] bool runs() const noexcept;

private:
    std::uint64_t process_;
    std::intptr_t handle_;       // -1: the system gives none
    std::uint64_t started_ = 0;  // its start time, where there is no handle
};

}  // namespace ddpdiag::platform
