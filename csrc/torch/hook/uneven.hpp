// DDP's join(divide_by_initial_world_size=False): once a rank has no more data, the sum is divided by the number of
// ranks that have some. No hook's interface knows that number; DDP's reducer does.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/probe/module_state.hpp"
#include "torch/reduce/choose_path.hpp"

namespace ddpdiag {

// With the first bucket of a pass: notes the ranks that take part, if they are fewer than the module's group has.
void count_ranks_left(ModuleState& module);

// The options for a bucket of this pass. If ranks have left, the gradients are rescaled here, to the last bit as DDP
// does without a hook where nothing is compressed.
[[nodiscard]] PathOptions for_ranks_left(const ModuleState& module, const at::Tensor& buffer,
                                         const PathOptions& options);

}  // namespace ddpdiag
