// A bucket's life, whatever its caller and its path: where observing and reducing meet.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdint>
#include <memory>

#include "torch/hook/in_flight.hpp"
#include "torch/probe/bucket_start.hpp"
#include "torch/probe/operation_pool.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/reduce/path.hpp"

namespace ddpdiag {

// What the caller waits for.
enum class Wants : std::uint8_t {
    tensor,  // a future of the bucket's buffer
    object,  // a future of the caller's object: the buffer as a Python object
    same,    // a future of what the path has begun, done after our part of it
    begun,   // what the path has begun, as it is; not for a path that finishes
};

// On the thread that runs the hook. Publishes the bucket, starts its path, and arranges for its end. Its
// errors name the rank and the bucket, except those of a foreign hook. `object`: for Wants::object.
[[nodiscard]] Begun run_bucket(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                               const std::shared_ptr<const BucketLayout>& layout,
                               const std::shared_ptr<Path>& path, const Arrival& arrival, Wants wants,
                               const c10::IValue& object = {});

// The same for a bucket that nobody records. `in_flight` and `futures` are the caller's own; it ends the pass of the latter
// when the next one begins.
[[nodiscard]] Begun run_unrecorded(c10d::GradBucket& bucket, const std::shared_ptr<Path>& path,
                                   InFlight& in_flight, OperationPool& futures, Wants wants,
                                   const c10::IValue& object);

}  // namespace ddpdiag
