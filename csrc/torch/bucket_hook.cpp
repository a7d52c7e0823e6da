#include "torch/bucket_hook.hpp"

#include <ATen/Functions.h>

#include <stdexcept>
#include <utility>

#include "torch/backward_probe.hpp"
#include "torch/bucket_operation.hpp"
#include "torch/start_signal.hpp"

namespace ddpdiag {
namespace {

using c10::ivalue::Future;

struct Enqueued {
    c10::intrusive_ptr<Future> future;           // Gloo's own
    std::shared_ptr<BucketOperation> operation;  // nullptr: the recorder is paused
};

void drop_unconsumed(ModuleState& module) {
    // Left over from a backward pass that failed, or from join(): nobody will take them any more.
    for (std::size_t i = module.next_consumed; i < module.unconsumed.size(); ++i) {
        module.unconsumed[i]->abandoned();
    }
    module.unconsumed.clear();
    module.next_consumed = 0;
}

Record bucket_record(const Recorder& recorder, const BucketLayout& layout, c10d::GradBucket& bucket,
                     Group& group, std::uint64_t sequence, std::int64_t ready, bool native) {
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::bucket);
    record.dtype = static_cast<std::uint8_t>(layout.dtype);
    record.reduce_op = static_cast<std::uint8_t>(ReduceOp::average);
    record.flags = (bucket.isLast() ? flag_last_bucket : 0U) | (native ? flag_native : 0U);
    record.group = group.id;
    record.sequence = sequence;
    record.reference = layout.identity;
    record.bytes = layout.bytes;
    record.step = recorder.step_of(*layout.module);
    record.module = layout.module->index;
    record.index = layout.index;
    record.thread = platform::thread_id();
    record.times[bucket_time::ready] = ready;
    return record;
}

c10::intrusive_ptr<Future> all_reduce(Group& group, c10d::GradBucket& bucket) {
    std::vector<at::Tensor> tensors = {bucket.getBufferRef()};
    return group.lock()->allreduce(tensors)->getFuture();
}

// The same two operations, in the same order, as torch's builtin hook: division first, so that half
// precision doesn't overflow, and so that the result is the same to the last bit.
void average(Group& group, c10d::GradBucket& bucket) {
    bucket.getBufferRef().div_(group.size);
}

void require_open(const Recorder& recorder) {
    if (recorder.closed()) {
        throw std::runtime_error(
            "pyddpdiag: the recorder is closed, but DDP still calls its hook on rank " +
            std::to_string(recorder.rank()) +
            ".\n  hint: keep the recorder open as long as the model trains; to stop recording earlier, call "
            "recorder.pause().");
    }
}

Enqueued enqueue(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                 const std::shared_ptr<const BucketLayout>& layout, Group* group, std::int64_t ready,
                 bool native) {
    ModuleState& module = *layout->module;
    if (group == nullptr) {
        group = module.group.get();
    }
    bool consumes = native;
    if (bucket.getIndex() == 0) {
        drop_unconsumed(module);
        module.signal_by_copy = StartSignal::by_copy_is_possible();
        consumes = begin_backward(recorder, layout->module) && native;
    } else if (native) {
        consumes = !module.unconsumed.empty();
    }
    // Counted when paused too: the ranks need not pause at the same bucket.
    const std::uint64_t sequence = group->next_sequence.fetch_add(1, std::memory_order_relaxed);
    if (recorder->paused()) {
        average(*group, bucket);
        return {all_reduce(*group, bucket), nullptr};
    }
    auto operation = std::make_shared<BucketOperation>(
        recorder, layout, bucket_record(*recorder, *layout, bucket, *group, sequence, ready, native),
        consumes);
    if (consumes) {
        module.unconsumed.push_back(operation);
    }
    try {
        average(*group, bucket);
        operation->enqueued(bucket.getBufferRef());
        const StartSignal signal(operation, module.signal_by_copy);
        auto future = all_reduce(*group, bucket);
        operation->returned();
        return {std::move(future), std::move(operation)};
    } catch (...) {
        std::rethrow_exception(operation->failed(std::current_exception()));
    }
}

class TimedBucketHook final : public c10d::CommHookInterface {
public:
    TimedBucketHook(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module)
        : recorder_(std::move(recorder)), module_(std::move(module)) {}

    c10::intrusive_ptr<Future> runHook(c10d::GradBucket& bucket) override {
        const std::int64_t ready = platform::monotonic_ns();
        require_open(*recorder_);
        auto [future, operation] = enqueue(recorder_, bucket, layout_of(bucket), nullptr, ready, true);
        if (operation == nullptr) {
            return future;
        }
        return future->then(
            [operation = std::move(operation)](Future& done) -> c10::IValue {
                if (done.hasError()) {
                    std::rethrow_exception(operation->failed(done.exception_ptr()));
                }
                operation->ended();
                return done.value();
            },
            future->elementType());
    }

    at::Tensor parseHookResult(const c10::IValue& result) override {
        // DDP takes the buckets in the order in which it ran the hook on them.
        if (module_->next_consumed < module_->unconsumed.size()) {
            module_->unconsumed[module_->next_consumed++]->consumed();
        }
        return c10d::detail::parseCppCommHookResult(result);
    }

private:
    // The recorder knows all layouts, under a lock; DDP mostly brings the bucket that we have seen at its index.
    const std::shared_ptr<const BucketLayout>& layout_of(c10d::GradBucket& bucket) {
        const std::size_t index = bucket.getIndex();
        if (index >= seen_.size()) {
            seen_.resize(index + 1);
        }
        Seen& seen = seen_[index];
        const at::Tensor& buffer = bucket.getBufferRef();
        if (seen.address != buffer.unsafeGetTensorImpl()) {
            seen = Seen{buffer.unsafeGetTensorImpl(),
                        c10::weak_intrusive_ptr<c10::TensorImpl>(buffer.getIntrusivePtr()),
                        recorder_->layout(bucket)};
        }
        return seen.layout;
    }

    struct Seen {
        const c10::TensorImpl* address = nullptr;
        // Keeps the address from being given to another buffer.
        c10::weak_intrusive_ptr<c10::TensorImpl> buffer{c10::intrusive_ptr<c10::TensorImpl>()};
        std::shared_ptr<const BucketLayout> layout;
    };

    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<ModuleState> module_;
    std::vector<Seen> seen_;
};

}  // namespace

c10::intrusive_ptr<Future> timed_allreduce(const std::shared_ptr<Recorder>& recorder,
                                           c10d::GradBucket& bucket, const std::shared_ptr<Group>& group,
                                           const c10::IValue& result) {
    const std::int64_t ready = platform::monotonic_ns();
    require_open(*recorder);
    auto [future, operation] = enqueue(recorder, bucket, recorder->layout(bucket), group.get(), ready, false);
    auto averaged = c10::make_intrusive<Future>(c10::PyObjectType::get(), future->devices());
    future->addCallback([operation = std::move(operation), averaged, result](Future& done) {
        if (done.hasError()) {
            averaged->setError(operation != nullptr ? operation->failed(done.exception_ptr())
                                                    : done.exception_ptr());
            return;
        }
        if (operation != nullptr) {
            operation->ended();
        }
        // With the storages given, torch need not look into the Python object for them.
        averaged->markCompleted(result, done.storages());
    });
    return averaged;
}

void attach(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
            c10d::Reducer& reducer, const std::vector<at::Tensor>& parameters) {
    reducer.register_comm_hook(std::make_unique<TimedBucketHook>(recorder, module));
    watch_parameters(recorder, module, parameters);
}

}  // namespace ddpdiag
