#include "core/trace/pulse.hpp"

#include <exception>
#include <utility>

#include "platform/beside.hpp"
#include "platform/platform.hpp"

namespace ddpdiag {

Pulse::Pulse(std::function<void()> beat, std::chrono::milliseconds interval)
    : process_(platform::process_id()),
      thread_(std::make_unique<std::thread>(
          platform::start_beside([this, beat = std::move(beat), interval] { run(beat, interval); }))) {}

Pulse::~Pulse() {
    // Whoever does not want to wait for a beat that hangs has called `stop`.
    static_cast<void>(stop(std::chrono::hours(24)));
}

void Pulse::run(const std::function<void()>& beat, std::chrono::milliseconds interval) {
    platform::enter_background("ddpdiag-pulse");
    beat_until_stopped(beat, interval);
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
}

void Pulse::beat_until_stopped(const std::function<void()>& beat, std::chrono::milliseconds interval) {
    std::unique_lock lock(mutex_);
    for (bool last = false;; last = stopped_) {
        lock.unlock();
        try {
            beat();
        } catch (const std::exception&) {
            return;  // nobody is there to tell, and the program must not suffer
        }
        if (last) {
            return;
        }
        lock.lock();
        changed_.wait_for(lock, interval, [this] { return stopped_; });
    }
}

bool Pulse::stop(std::chrono::milliseconds longest) noexcept {
    if (platform::process_id() != process_) {
        // The child's copy names a thread that exists in the parent only: neither to be joined nor destroyed.
        [[maybe_unused]] const std::thread* const left = thread_.release();
        return true;
    }
    if (thread_ == nullptr) {
        return true;
    }
    std::unique_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    const bool over = changed_.wait_for(lock, longest, [this] { return over_; });
    lock.unlock();
    if (over) {
        thread_->join();
    } else {
        thread_->detach();
    }
    thread_.reset();
    return over;
}

}  // namespace ddpdiag
