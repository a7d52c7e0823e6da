// Objects that are used again from pass to pass instead of being made and destroyed.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

namespace ddpdiag {

// The object at `index`, or a new one there if somebody still holds the old one. For one thread, which hands them to
// others; they are not freed by those, whom malloc would make wait for it.
template <typename Object>
const std::shared_ptr<Object>& idle(std::vector<std::shared_ptr<Object>>& objects, std::size_t index) {
    if (index >= objects.size()) {
        objects.resize(index + 1);
    }
    auto& object = objects[index];
    if (object == nullptr || object.use_count() != 1) {
        object = std::make_shared<Object>();
    } else {
        // Behind what its last holder did: use_count() by itself orders nothing.
        std::atomic_thread_fence(std::memory_order_acquire);
    }
    return object;
}

}  // namespace ddpdiag
