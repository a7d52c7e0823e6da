// The common beginning of every bucket, whichever hook reduces it.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdint>
#include <memory>

#include "torch/bucket_operation.hpp"
#include "torch/recorder.hpp"

namespace ddpdiag {

struct BucketStart {
    Group* group = nullptr;                      // never null
    std::shared_ptr<BucketOperation> operation;  // nullptr: the recorder is paused
    std::uint64_t sequence = 0;                  // of this bucket in its group, the same on all ranks
};

// Throws std::runtime_error if the recorder is closed.
void require_open(const Recorder& recorder);

// What is known of the bucket when its hook is entered.
struct BucketFacts {
    std::int64_t ready = 0;   // when the hook was entered
    std::uint32_t flags = 0;  // flag_native, flag_reducer: we are told when the result is taken; flag_foreign
    Dtype dtype = Dtype::other;
    std::uint64_t bytes = 0;  // that will travel
};

// Publishes the bucket as in flight. `group`: nullptr = that of the bucket's DDP module.
BucketStart start_bucket(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                         const std::shared_ptr<const BucketLayout>& layout, Group* group,
                         const BucketFacts& facts);

// The next result in the order of the buckets was taken.
void consume_next(ModuleState& module);

}  // namespace ddpdiag
