// DDP's communication hook: averages a bucket as torch's builtin ALLREDUCE hook does, with probes around it; or,
// on request, in 16 bits.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>

#include "torch/recorder.hpp"

namespace ddpdiag {

// For a hook registered from Python. `result` is what the returned future will hold: the bucket's buffer as
// a Python object, made by the caller while it has the interpreter lock, so that the worker needs it not.
// `group`: nullptr = the group of the bucket's DDP module.
c10::intrusive_ptr<c10::ivalue::Future> timed_allreduce(const std::shared_ptr<Recorder>& recorder,
                                                        c10d::GradBucket& bucket,
                                                        const std::shared_ptr<Group>& group,
                                                        const c10::IValue& result, Compression compression);

// Registers the native hook and the parameter probes with a DDP module's reducer.
void attach(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
            c10d::Reducer& reducer, const std::vector<at::Tensor>& parameters,
            const CompressionOptions& compression);

}  // namespace ddpdiag
