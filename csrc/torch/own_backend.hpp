// A Gloo group that we made ourselves, beside the training's.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <mutex>
#include <utility>

namespace ddpdiag {

// Its threads must end with the training's group, to which Python ties it, and not with whoever happens to be last: whoever
// uses it holds this weakly. A weak reference to the backend itself would keep its threads, too, which then abort a process
// that ends while they let go of a tensor of Python's. For any thread.
class OwnBackend {
public:
    explicit OwnBackend(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

    // nullptr where it is gone, too.
    [[nodiscard]] static c10::intrusive_ptr<c10d::Backend> of(const std::weak_ptr<OwnBackend>& held) {
        const auto own = held.lock();
        return own != nullptr ? own->get() : nullptr;
    }

    // nullptr after take().
    [[nodiscard]] c10::intrusive_ptr<c10d::Backend> get() const {
        const std::lock_guard lock(mutex_);
        return backend_;
    }
    [[nodiscard]] c10::intrusive_ptr<c10d::Backend> take() {
        const std::lock_guard lock(mutex_);
        return std::move(backend_);
    }

private:
    mutable std::mutex mutex_;
    c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace ddpdiag
