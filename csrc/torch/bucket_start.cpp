#include "torch/bucket_start.hpp"

#include <stdexcept>
#include <string>

#include "torch/backward_probe.hpp"
#include "torch/idle.hpp"
#include "torch/start_signal.hpp"

namespace ddpdiag {
namespace {

void drop_unconsumed(ModuleState& module) {
    // Left over from a backward pass that failed, or from join(): nobody will take them any more.
    for (std::size_t i = module.next_consumed; i < module.unconsumed.size(); ++i) {
        module.unconsumed[i]->abandoned();
    }
    module.unconsumed.clear();
    module.next_consumed = 0;
    module.futures.clear();
}

Record bucket_record(const Recorder& recorder, const BucketLayout& layout, c10d::GradBucket& bucket,
                     const Group& group, std::uint64_t sequence, const BucketFacts& facts) {
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::bucket);
    record.dtype = static_cast<std::uint8_t>(facts.dtype);
    record.reduce_op = static_cast<std::uint8_t>(ReduceOp::average);
    record.flags = facts.flags | (bucket.isLast() ? flag_last_bucket : 0U);
    record.group = group.id;
    record.sequence = sequence;
    record.reference = layout.identity;
    record.bytes = facts.bytes;
    record.step = recorder.step_of(*layout.module);
    record.module = layout.module->index;
    record.index = layout.index;
    record.thread = platform::thread_id();
    record.times[bucket_time::ready] = facts.ready;
    return record;
}

}  // namespace

void require_open(const Recorder& recorder) {
    if (recorder.closed()) {
        throw std::runtime_error(
            "pyddpdiag: the recorder is closed, but DDP still calls its hook on rank " +
            std::to_string(recorder.rank()) +
            ".\n  hint: keep the recorder open as long as the model trains; to stop recording earlier, call "
            "recorder.pause().");
    }
}

void consume_next(ModuleState& module) {
    if (module.next_consumed < module.unconsumed.size()) {
        module.unconsumed[module.next_consumed++]->consumed();
    }
}

BucketStart start_bucket(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                         const std::shared_ptr<const BucketLayout>& layout, Group* group,
                         const BucketFacts& facts) {
    ModuleState& module = *layout->module;
    if (group == nullptr) {
        group = module.group.get();
    }
    // A GradientReducer has begun its pass itself, and tells of every bucket that it takes.
    const bool by_reducer = (facts.flags & flag_reducer) != 0;
    const bool native = (facts.flags & flag_native) != 0;
    bool consumes = native || by_reducer;
    if (bucket.getIndex() == 0) {
        drop_unconsumed(module);
        module.signal_by_copy = StartSignal::by_copy_is_possible();
        if (!by_reducer) {
            const bool by_span = !module.signal_by_copy || (facts.flags & flag_foreign) != 0;
            consumes = begin_backward(recorder, layout->module, *group, by_span) && native;
        }
    } else if (native) {
        consumes = !module.unconsumed.empty();
    }
    // Counted when paused too: the ranks need not pause at the same bucket.
    const std::uint64_t sequence = group->next_sequence.fetch_add(1, std::memory_order_relaxed);
    if (recorder->paused()) {
        return {group, nullptr, sequence};
    }
    auto operation = idle(module.operations, bucket.getIndex());
    operation->begin(recorder, layout, bucket_record(*recorder, *layout, bucket, *group, sequence, facts),
                     consumes);
    if (consumes) {
        module.unconsumed.push_back(operation);
    }
    return {group, std::move(operation), sequence};
}

}  // namespace ddpdiag
