// Probes around a communication hook that is not ours: PowerSGD, torch's own, a user's.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <functional>
#include <memory>

#include "torch/probe/recorder.hpp"

namespace ddpdiag {

// Runs `hook`, which starts the reduction of `bucket` and returns its future, and returns the same future.
// `started` is the first Gloo operation that the hook starts itself; operations that its callbacks start
// later are recorded as other collectives. `bytes` is the size of the bucket, not of what the hook sends.
c10::intrusive_ptr<c10::ivalue::Future> timed_foreign(
    const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket, const std::shared_ptr<Group>& group,
    const std::function<c10::intrusive_ptr<c10::ivalue::Future>()>& hook);

}  // namespace ddpdiag
