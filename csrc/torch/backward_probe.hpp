// When a module's forward and backward pass begin and end, and when each gradient becomes ready.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "torch/backward_pass.hpp"
#include "torch/recorder.hpp"

namespace ddpdiag {

// Opens the record of a backward pass that nobody but the caller brings to its end.
[[nodiscard]] std::shared_ptr<BackwardPass> open_pass(const std::shared_ptr<Recorder>& recorder,
                                                      const std::shared_ptr<ModuleState>& module,
                                                      const Group& group, bool needs_probe);

// Called with a module's first bucket: opens the record of this backward pass, to be closed when DDP has
// finalised it. `needs_probe`: a bucket's start is told by its span. True if this runs within a backward pass
// (DDP's join() runs hooks without one).
bool begin_backward(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                    const Group& group, bool needs_probe);

// Watches the gradient accumulators of all parameters for as long as the parameters live.
void watch_parameters(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                      const std::vector<at::Tensor>& parameters);

void forward_begin(ModuleState& module, bool synchronising);
// `outputs`: the tensors that the module returned; the backward pass begins with the first of them.
void forward_end(const Recorder& recorder, const std::shared_ptr<ModuleState>& module,
                 const std::vector<at::Tensor>& outputs);

}  // namespace ddpdiag
