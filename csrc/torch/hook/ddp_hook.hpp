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
class PlainDdp;

// What averages and records the buckets of a DDP module, and the parameter probes: both may change between two backward
// passes. Where nothing is to be changed, DDP averages as it does without us, and is observed; a path of ours takes a hook.
class Attachment {
public:
    // Throws std::runtime_error if the reducer has a hook.
    Attachment(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
               const std::vector<at::Tensor>& parameters, const PathOptions& options);
    // Takes over a module whose hook, one of ours, was registered from Python; it serves nobody and averages over `group`.
    Attachment(std::shared_ptr<Group> group, const std::vector<at::Tensor>& parameters);
    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;
    ~Attachment();
    // From the next pass on, in place of the recorder before it. Throws as the constructor.
    void serve(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
               const std::vector<at::Tensor>& parameters, const PathOptions& options);
    // From the next pass on, DDP averages as without us; a hook that was registered from Python, like torch's builtin one.
    void release();

private:
    void observe(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module);
    void hook(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
              const PathOptions& options);
    void take_hook_away();

    std::shared_ptr<HookOfModule> pythons_;  // registered from Python
    std::weak_ptr<c10d::Reducer> reducer_;   // that has the hook below
    const c10d::CommHookInterface* ours_ = nullptr;
    std::shared_ptr<PlainDdp> plain_;
    std::optional<ParameterWatch> parameters_;
};

}  // namespace ddpdiag
