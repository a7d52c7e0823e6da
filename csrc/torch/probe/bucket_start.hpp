// The common beginning of every bucket, whatever its caller and its path.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdint>
#include <memory>
#include <optional>

#include "torch/probe/bucket_operation.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/reduce/facts.hpp"

namespace ddpdiag {

// Where a bucket comes from.
struct Arrival {
    std::int64_t ready = 0;    // when its hook was entered
    std::uint32_t origin = 0;  // flag_native, flag_reducer; 0: a Python hook
    bool sees_taken = false;   // we see the result taken
    // What all ranks call it; nothing: its number among the buckets of its group that recorders have counted. A recorder
    // may be closed on some ranks only, where its caller goes on without one.
    std::optional<std::uint64_t> number = std::nullopt;
};

struct BucketStart {
    std::shared_ptr<BucketOperation> operation;  // nullptr: the recorder is paused
    std::uint64_t sequence = 0;                  // of this bucket in its group, the same on all ranks
};

// Throws std::runtime_error if the recorder is closed. While the result lives, it may be closed, but keeps its file: the
// bucket is recorded.
[[nodiscard]] TraceVisit require_open(const Recorder& recorder);

// Publishes the bucket as in flight; the first bucket of a pass also opens the pass.
[[nodiscard]] BucketStart start_bucket(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                                       const std::shared_ptr<const BucketLayout>& layout, Group& group,
                                       const Arrival& arrival, const PathFacts& facts);

}  // namespace ddpdiag
