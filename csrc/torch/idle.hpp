// Objects that are reused from pass to pass instead of being created and destroyed.
#pragma once

#include <atomic>
#include <memory>

namespace ddpdiag {

// The object, or a new one in its place if somebody still holds the old one. For one thread, which hands the
// objects to others. The others never free them: malloc would make them wait for this thread.
template <typename Object>
const std::shared_ptr<Object>& idle(std::shared_ptr<Object>& object) {
    if (object == nullptr || object.use_count() != 1) {
        object = std::make_shared<Object>();
    } else {
        // Orders us after what its last holder did: use_count() by itself orders nothing.
        std::atomic_thread_fence(std::memory_order_acquire);
    }
    return object;
}

}  // namespace ddpdiag
