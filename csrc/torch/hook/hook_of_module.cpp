#include "torch/hook/hook_of_module.hpp"

#include <utility>

#include "torch/hook/uneven.hpp"

namespace ddpdiag {
using c10::ivalue::Future;

void HookOfModule::serve(Service next) {
    const std::lock_guard lock(mutex_);
    next_ = std::move(next);
    changed_.store(true, std::memory_order_release);
}

c10::intrusive_ptr<Future> HookOfModule::run(c10d::GradBucket& bucket, const Caller& caller) {
    const Arrival arrival{.ready = platform::monotonic_ns(),
                          .origin = caller.origin,
                          .sees_taken = (caller.origin & flag_native) != 0};
    if (bucket.getIndex() == 0) {
        begin_pass();
    }
    if (serving_.recorder == nullptr) {
        return average(bucket, caller);
    }
    const auto visit = require_open(*serving_.recorder);
    const Seen& known = seen(bucket);
    return run_bucket(serving_.recorder, bucket, known.layout, known.path, arrival, caller.wants,
                      caller.object)
        .future;
}

void HookOfModule::taken() {
    if (serving_.module != nullptr) {
        serving_.module->hook.operations.consume_next();
    }
}

void HookOfModule::begin_pass() {
    if (changed_.load(std::memory_order_acquire)) {
        Service past;  // destroyed after the lock is free: it may be the last to hold a recorder
        const std::lock_guard lock(mutex_);
        past = std::exchange(serving_, std::move(next_));
        if (past.module != nullptr) {
            group_ = past.module->identity.group();
        }
        next_ = {};
        changed_.store(false, std::memory_order_relaxed);
        seen_.clear();
    }
    unserved_futures_.end_pass();
    if (serving_.module != nullptr) {
        count_ranks_left(*serving_.module);
    }
}

c10::intrusive_ptr<Future> HookOfModule::average(c10d::GradBucket& bucket, const Caller& caller) {
    const auto& path = unserved_.path(bucket.getIndex(), bucket.getBufferRef(), group_, {});
    return run_unrecorded(bucket, path, unserved_, unserved_futures_, caller.wants, caller.object).future;
}

// The recorder knows all layouts, under a lock; mostly DDP brings the bucket that we saw last at its
// index.
const HookOfModule::Seen& HookOfModule::seen(c10d::GradBucket& bucket) {
    const std::size_t index = bucket.getIndex();
    if (index >= seen_.size()) {
        seen_.resize(index + 1);
    }
    Seen& known = seen_[index];
    const at::Tensor& buffer = bucket.getBufferRef();
    const PathOptions options = for_ranks_left(*serving_.module, buffer, serving_.options);
    if (known.buffer._unsafe_get_target() != buffer.unsafeGetTensorImpl() || known.options != options) {
        auto layout = serving_.recorder->layout(bucket);
        ModuleState& module = *layout->module;
        auto path = in_flight_of(module).path(index, buffer, module.identity.group(), options);
        known = Seen{c10::weak_intrusive_ptr<c10::TensorImpl>(buffer.getIntrusivePtr()), std::move(layout),
                     std::move(path), options};
    }
    return known;
}

}  // namespace ddpdiag
