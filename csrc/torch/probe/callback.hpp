// A function that one thread may remove while another calls it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace ddpdiag {

// It mostly holds Python functions, so neither the call nor the destruction happens under the mutex: both
// wait for the GIL, which the removing thread may hold.
template <typename... Arguments>
class Callback {
public:
    using Function = std::function<void(Arguments...)>;

    void set(Function function) { exchange(std::make_shared<const Function>(std::move(function))); }
    // A call that has already begun still finishes.
    void take_away() { exchange(nullptr); }
    // Makes the last call, once, however many threads try.
    void call_once(Arguments... arguments) {
        if (const auto function = exchange(nullptr); function != nullptr) {
            (*function)(arguments...);
        }
    }

    // Does nothing if there is none. Throws what the function throws.
    void operator()(Arguments... arguments) const {
        if (const auto function = current(); function != nullptr) {
            (*function)(arguments...);
        }
    }

private:
    using Shared = std::shared_ptr<const Function>;

    // Returns the old function, which thereby outlives the lock.
    Shared exchange(Shared function) {
        const std::lock_guard lock(mutex_);
        return std::exchange(function_, std::move(function));
    }
    [[nodiscard]] Shared current() const {
        const std::lock_guard lock(mutex_);
        return function_;
    }

    mutable std::mutex mutex_;
    Shared function_;
};

}  // namespace ddpdiag
