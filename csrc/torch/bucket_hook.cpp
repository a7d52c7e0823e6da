#include "torch/bucket_hook.hpp"

#include <utility>

#include "torch/average.hpp"
#include "torch/backward_probe.hpp"
#include "torch/bucket_flight.hpp"
#include "torch/bucket_start.hpp"
#include "torch/element.hpp"
#include "torch/start_signal.hpp"

namespace ddpdiag {
namespace {

using c10::ivalue::Future;

// nullptr: the bucket travels as it is.
std::shared_ptr<CompressedBucket> compressed_bucket(ModuleState& module, c10d::GradBucket& bucket,
                                                    const Group& group, const CompressionOptions& options) {
    const at::Tensor& buffer = bucket.getBufferRef();
    if (options.to == Compression::none || !CompressedBucket::possible(buffer)) {
        return nullptr;
    }
    const std::size_t index = bucket.getIndex();
    if (index >= module.compressed.size()) {
        module.compressed.resize(index + 1);
    }
    auto& known = module.compressed[index];
    if (known == nullptr || !known->serves(buffer, group)) {
        known = std::make_shared<CompressedBucket>(buffer, group, options);
    }
    return known;
}

BucketFacts facts_of(const BucketLayout& layout, const CompressedBucket* compressed, std::int64_t ready,
                     bool native) {
    BucketFacts facts{
        .ready = ready, .flags = native ? flag_native : 0U, .dtype = layout.dtype, .bytes = layout.bytes};
    if (compressed != nullptr) {
        facts.flags |= flag_compressed;
        facts.dtype = dtype_of(compressed->wire().scalar_type());
        facts.bytes = compressed->wire().nbytes();
    }
    return facts;
}

// Divides the bucket, and looks at it in a watched pass.
void average(const at::Tensor& buffer, std::int64_t ranks, BucketOperation* operation) {
    if (operation != nullptr && operation->watched()) {
        if (const auto statistics = divide_with_statistics(buffer, ranks)) {
            operation->look(buffer, static_cast<double>(ranks), statistics);
            return;
        }
        operation->look(buffer);
    }
    divide(buffer, ranks);
}

Enqueued enqueue(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                 const std::shared_ptr<const BucketLayout>& layout, Group* group, std::int64_t ready,
                 bool native, const CompressionOptions& compression) {
    const at::Tensor& buffer = bucket.getBufferRef();
    auto compressed = compressed_bucket(*layout->module, bucket,
                                        group != nullptr ? *group : *layout->module->group, compression);
    auto start =
        start_bucket(recorder, bucket, layout, group, facts_of(*layout, compressed.get(), ready, native));
    auto& operation = start.operation;
    try {
        if (compressed != nullptr) {
            if (operation != nullptr) {
                operation->look(buffer);
            }
            compressed->compress(buffer, start.group->size);
        } else {
            // The same two operations, in the same order, as torch's builtin hook, so that the result is the same
            // to the last bit.
            average(buffer, start.group->size, operation.get());
        }
        const at::Tensor& travelling = compressed != nullptr ? compressed->wire() : buffer;
        const auto reduce = [&] {
            return compressed != nullptr ? compressed->reduce(start.sequence)
                                         : all_reduce(*start.group, buffer);
        };
        if (operation == nullptr) {
            return {reduce(), nullptr, std::move(compressed), buffer};
        }
        operation->enqueued(travelling);
        const StartSignal signal(operation, layout->module->signal_by_copy);
        auto future = reduce();
        operation->returned();
        return {std::move(future), std::move(operation), std::move(compressed), buffer};
    } catch (...) {
        if (operation == nullptr) {
            throw;
        }
        std::rethrow_exception(operation->failed(std::current_exception()));
    }
}

class TimedBucketHook final : public c10d::CommHookInterface {
public:
    TimedBucketHook(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module,
                    const CompressionOptions& compression)
        : recorder_(std::move(recorder)), module_(std::move(module)), compression_(compression) {}

    c10::intrusive_ptr<Future> runHook(c10d::GradBucket& bucket) override {
        const std::int64_t ready = platform::monotonic_ns();
        require_open(*recorder_);
        Enqueued enqueued = enqueue(recorder_, bucket, layout_of(bucket), nullptr, ready, true, compression_);
        if (enqueued.operation == nullptr && enqueued.compressed == nullptr) {
            return std::move(enqueued.future);
        }
        c10::IValue result(enqueued.buffer);
        return finished(std::move(enqueued), *module_, bucket.getIndex(), c10::TensorType::get(),
                        std::move(result));
    }

    at::Tensor parseHookResult(const c10::IValue& result) override {
        // DDP takes the buckets in the order in which it ran the hook on them.
        consume_next(*module_);
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
        if (seen.buffer._unsafe_get_target() != buffer.unsafeGetTensorImpl()) {
            seen = Seen{c10::weak_intrusive_ptr<c10::TensorImpl>(buffer.getIntrusivePtr()),
                        recorder_->layout(bucket)};
        }
        return seen.layout;
    }

    struct Seen {
        // Keeps the address from being given to another buffer.
        c10::weak_intrusive_ptr<c10::TensorImpl> buffer{c10::intrusive_ptr<c10::TensorImpl>()};
        std::shared_ptr<const BucketLayout> layout;
    };

    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<ModuleState> module_;
    CompressionOptions compression_;
    std::vector<Seen> seen_;
};

}  // namespace

c10::intrusive_ptr<Future> timed_allreduce(const std::shared_ptr<Recorder>& recorder,
                                           c10d::GradBucket& bucket, const std::shared_ptr<Group>& group,
                                           const c10::IValue& result, Compression compression) {
    const std::int64_t ready = platform::monotonic_ns();
    require_open(*recorder);
    const auto layout = recorder->layout(bucket);
    Enqueued enqueued = enqueue(recorder, bucket, layout, group.get(), ready, false, {.to = compression});
    return finished(std::move(enqueued), *layout->module, bucket.getIndex(), c10::PyObjectType::get(),
                    result);
}

void attach(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
            c10d::Reducer& reducer, const std::vector<at::Tensor>& parameters,
            const CompressionOptions& compression) {
    reducer.register_comm_hook(std::make_unique<TimedBucketHook>(recorder, module, compression));
    watch_parameters(recorder, module, parameters);
}

}  // namespace ddpdiag
