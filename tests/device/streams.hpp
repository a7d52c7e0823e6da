// Streams and events of a device for tests: each stream is a thread that does its work in order, and late on purpose.
#pragma once

#include <c10/core/Stream.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace test_device {

// Before each piece of work, of the default stream and of the pool's. Whoever does not wait for it finds the values of
// before.
inline std::atomic<std::int64_t> default_delay_us{0};
inline std::atomic<std::int64_t> pool_delay_us{0};

class Event {
public:
    // The version that is recorded next.
    std::uint64_t next() {
        const std::lock_guard lock(mutex_);
        return ++recorded_;
    }
    std::uint64_t recorded() {
        const std::lock_guard lock(mutex_);
        return recorded_;
    }
    void reached(std::uint64_t version) {
        {
            const std::lock_guard lock(mutex_);
            reached_ = std::max(reached_, version);
        }
        changed_.notify_all();
    }
    bool is_reached(std::uint64_t version) {
        const std::lock_guard lock(mutex_);
        return reached_ >= version;
    }
    void wait(std::uint64_t version) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return reached_ >= version; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t recorded_ = 0;
    std::uint64_t reached_ = 0;
};

class StreamThread {
public:
    StreamThread() {
        std::thread([this] { run(); }).detach();
    }

    void compute(std::function<void()> work) {
        order([this, work = std::move(work)] {
            std::this_thread::sleep_for(std::chrono::microseconds(delay_us_->load()));
            work();
        });
    }
    void record(const std::shared_ptr<Event>& event) {
        order([event, version = event->next()] { event->reached(version); });
    }
    void wait_for(const std::shared_ptr<Event>& event) {
        order([event, version = event->recorded()] { event->wait(version); });
    }
    void order(std::function<void()> work) {
        {
            const std::lock_guard lock(mutex_);
            work_.push_back(std::move(work));
        }
        changed_.notify_all();
    }
    void synchronize() {
        const auto event = std::make_shared<Event>();
        record(event);
        event->wait(1);
    }
    void delay_by(const std::atomic<std::int64_t>& us) { delay_us_ = &us; }
    bool is_idle() {
        const std::lock_guard lock(mutex_);
        return work_.empty();
    }

private:
    [[noreturn]] void run() {
        while (true) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return !work_.empty(); });
            // It stays in the queue until it is done: is_idle() must see it.
            const auto work = work_.front();
            lock.unlock();
            work();
            lock.lock();
            work_.pop_front();
        }
    }

    const std::atomic<std::int64_t>* delay_us_ = &pool_delay_us;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;
};

// The first is the default stream; the others are the pool.
constexpr std::size_t streams = 5;

// Never destroyed: their threads run until the process ends.
inline StreamThread& thread_of(c10::StreamId id) {
    static auto* const all = [] {
        auto* const made = new std::array<StreamThread, streams>;
        made->front().delay_by(default_delay_us);
        return made;
    }();
    return all->at(static_cast<std::size_t>(id));
}

inline thread_local c10::StreamId current_stream = 0;

}  // namespace test_device
