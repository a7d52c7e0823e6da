// When a module's forward and backward pass begin and end, and when each gradient becomes ready.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <memory>
#include <vector>

#include "torch/probe/backward_pass.hpp"
#include "torch/probe/recorder.hpp"

namespace ddpdiag {

// Opens the record of a backward pass that only the caller ends.
[[nodiscard]] std::shared_ptr<BackwardPass> open_pass(const std::shared_ptr<Recorder>& recorder,
                                                      const std::shared_ptr<ModuleState>& module,
                                                      const Group& group, bool needs_probe);

// Called with a module's first bucket: opens the record of this backward pass, which is closed when DDP has
// finalised the pass. `needs_probe`: the starts of buckets come from spans. Returns true if this runs within
// a backward pass (DDP's join() runs hooks without one).
bool begin_backward(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                    const Group& group, bool needs_probe);

// The module, of those that a ParameterWatch watches, of which this thread accumulated a gradient last in the backward pass
// that it runs: while a reducer reduces a bucket, its own. nullptr: none, or no backward pass.
[[nodiscard]] ModuleState* module_in_backward() noexcept;

// Watches the gradient accumulators of all parameters for as long as these live, or until it is ended.
class ParameterWatch {
public:
    ParameterWatch(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                   const std::vector<at::Tensor>& parameters);
    // Not during a backward pass.
    void end();

private:
    using WeakParameter = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
    struct Watched {
        WeakParameter parameter;
        const torch::autograd::FunctionPreHook* observer;
    };
    std::vector<Watched> watched_;
};

void forward_begin(ModuleState& module, bool synchronising);
// `outputs`: the tensors that the module returned; the backward pass begins with the first of them. `begins` is
// called each time it comes to the first one that has a gradient's function.
void forward_end(const Recorder& recorder, const std::shared_ptr<ModuleState>& module,
                 const std::vector<at::Tensor>& outputs, std::function<void()> begins = {});

}  // namespace ddpdiag
