// What the system counts for a thread and its process: the reason why a step was slow on one rank.
#pragma once

#include <cstdint>

namespace ddpdiag::platform {

// Cumulative readings of the calling thread and its process; -1 = this system does not tell.
struct Usage {
    std::int64_t thread_cpu_ns = -1;         // user and system time of the thread
    std::int64_t run_delay_ns = -1;          // time that the thread was runnable and waited for a core
    std::int64_t process_cpu_ns = -1;        // user and system time of all threads of the process
    std::int64_t major_faults = -1;          // of the thread: pages that had to be read from a disk
    std::int64_t involuntary_switches = -1;  // of the thread: a core was taken away from it
    std::int64_t load_milli = -1;            // load average of one minute, times 1000
};

// Takes the readings; a few microseconds at most.
[[nodiscard]] Usage usage() noexcept;

// The reading `thread_cpu_ns` alone.
[[nodiscard]] std::int64_t thread_cpu_ns() noexcept;

// Whether the thread that the process began with waits for a disk or a network file system.
class DiskWait {
public:
    DiskWait() noexcept;
    DiskWait(const DiskWait&) = delete;
    DiskWait& operator=(const DiskWait&) = delete;
    ~DiskWait();

    // At this moment; false as well where nobody can tell.
    [[nodiscard]] bool now() const noexcept;

private:
    int file_ = -1;
};

}  // namespace ddpdiag::platform
