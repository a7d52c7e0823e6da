#include "torch/probe/bucket_start.hpp"

#include <stdexcept>
#include <string>

#include "torch/probe/backward_probe.hpp"
#include "torch/probe/start_signal.hpp"

namespace ddpdiag {
namespace {

Record bucket_record(const Recorder& recorder, const BucketLayout& layout, c10d::GradBucket& bucket,
                     const Group& group, std::uint64_t sequence, const Arrival& arrival,
                     const PathFacts& facts) {
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::bucket);
    record.dtype = static_cast<std::uint8_t>(facts.dtype);
    record.reduce_op = static_cast<std::uint8_t>(ReduceOp::average);
    record.flags = arrival.origin | facts.flags | (bucket.isLast() ? flag_last_bucket : 0U) |
                   (bucket.getBufferRef().is_sparse() ? flag_sparse : 0U);
    record.group = group.id;
    record.sequence = sequence;
    record.reference = layout.identity;
    record.bytes = facts.bytes;
    record.step = recorder.step_of(*layout.module);
    record.module = layout.module->identity.index();
    record.index = layout.index;
    record.thread = platform::thread_id();
    record.times[bucket_time::ready] = arrival.ready;
    return record;
}

// Begins a pass of the module; true if DDP will take its results one by one.
bool begin_pass(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                const Group& group, const Arrival& arrival, const PathFacts& facts) {
    module->hook.operations.abandon_pass();
    module->hook.signal_by_copy = StartSignal::by_copy_is_possible();
    if ((arrival.origin & flag_reducer) != 0) {
        return true;  // it began its pass itself
    }
    const bool in_backward =
        begin_backward(recorder, module, group, StartSignal::needs_probe(facts.start, module->hook));
    return in_backward && arrival.sees_taken;
}

}  // namespace

TraceVisit require_open(const Recorder& recorder) {
    TraceVisit visit(&recorder.trace());
    if (recorder.closed()) {
        throw std::runtime_error(
            "pyddpdiag: the recorder is closed, but DDP still calls its hook on rank " +
            std::to_string(recorder.rank()) +
            ".\n  hint: keep the recorder open as long as the model trains; to stop recording earlier, call "
            "recorder.pause() or recorder.detach(ddp).");
    }
    return visit;
}

BucketStart start_bucket(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                         const std::shared_ptr<const BucketLayout>& layout, Group& group,
                         const Arrival& arrival, const PathFacts& facts) {
    OperationPool& operations = layout->module->hook.operations;
    bool consumes = false;
    if (bucket.getIndex() == 0) {
        consumes = begin_pass(recorder, layout->module, group, arrival, facts);
    } else if (arrival.sees_taken) {
        consumes = (arrival.origin & flag_reducer) != 0 || operations.expects_some();
    }
    // Counted even when paused: the ranks need not pause at the same bucket.
    const std::uint64_t sequence = group.next_sequence.fetch_add(1, std::memory_order_relaxed);
    group.bucket_collectives.fetch_add(facts.collectives.value_or(1), std::memory_order_relaxed);
    if (recorder->paused()) {
        return {nullptr, sequence};
    }
    const auto& operation = operations.take(bucket.getIndex());
    operation->begin(recorder, layout,
                     bucket_record(*recorder, *layout, bucket, group, sequence, arrival, facts), facts,
                     consumes);
    if (consumes) {
        operations.expect(operation);
    }
    return {operation, sequence};
}

}  // namespace ddpdiag
