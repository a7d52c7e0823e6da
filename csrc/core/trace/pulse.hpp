// A thread that does something small at regular intervals, beside the program and out of its way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace ddpdiag {

// Calls `beat` at once, then after each interval, and a last time when it is stopped. A beat that throws is the last.
class Pulse {
public:
    Pulse(std::function<void()> beat, std::chrono::milliseconds interval);
    Pulse(const Pulse&) = delete;
    Pulse& operator=(const Pulse&) = delete;
    ~Pulse();

    // Waits for the last beat to be over, for so long at most. False: it is not, as where a disk does not answer. Then the
    // thread is left to itself, and this object and all that a beat uses must live for good. In a forked child, which has
    // no such thread, it does nothing.
    [[nodiscard]] bool stop(std::chrono::milliseconds longest) noexcept;

private:
    void run(const std::function<void()>& beat, std::chrono::milliseconds interval);
    void beat_until_stopped(const std::function<void()>& beat, std::chrono::milliseconds interval);

    std::uint64_t process_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stopped_ = false;
    bool over_ = false;
    std::unique_ptr<std::thread> thread_;
};

}  // namespace ddpdiag
