// DDP's communication hook: averages a bucket like torch's builtin ALLREDUCE hook, with probes around it; or,
// on request, in 16 bits.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <optional>
#include <vector>

#include "torch/probe/backward_probe.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/reduce/choose_path.hpp"

namespace ddpdiag {

// For a hook registered from Python. `result` is what the returned future will hold: the bucket's buffer as
// a Python object, made by the caller while it holds the GIL, so the worker never takes it.
// `group`: nullptr = the group of the bucket's DDP module. `options`: those of bucket 0 hold for all buckets of its pass,
// so whoever decides on them does so once for each.
c10::intrusive_ptr<c10::ivalue::Future> timed_allreduce(const std::shared_ptr<Recorder>& recorder,
                                                        c10d::GradBucket& bucket,
                                                        const std::shared_ptr<Group>& group,
                                                        const c10::IValue& result,
                                                        const PathOptions& options);

class HookOfModule;

// The hook of a DDP module, which DDP keeps for good, and the parameter probes: whom they serve may change between
// two backward passes.
class Attachment {
public:
    // Registers the native hook.
    Attachment(c10d::Reducer& reducer, const std::shared_ptr<Recorder>& recorder,
               const std::shared_ptr<ModuleState>& module, const std::vector<at::Tensor>& parameters,
               const PathOptions& options);
    // Takes over a module whose hook, one of ours, was registered from Python; it serves nobody and averages over `group`.
    Attachment(std::shared_ptr<Group> group, const std::vector<at::Tensor>& parameters);
    // From the next pass on, in place of the recorder before it.
    void serve(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
               const std::vector<at::Tensor>& parameters, const PathOptions& options);
    // From the next pass on, the hook averages like torch's builtin one and records nothing.
    void release();

private:
    std::shared_ptr<HookOfModule> hook_;
    std::optional<ParameterWatch> parameters_;
};

}  // namespace ddpdiag
