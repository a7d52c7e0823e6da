// Modules whose hook was registered from Python and no longer serves the recorder that it was registered with. DDP
// keeps calling the Python hook, which asks here before anything else.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>
#include <vector>

#include "torch/hook/hook_of_module.hpp"

namespace ddpdiag {

// For the module with these parameters, for as long as `hook` lives.
void keep_for_detached(const std::shared_ptr<HookOfModule>& hook, const std::vector<at::Tensor>& parameters);

// What does the work for a bucket of such a module; nullptr: it is of none.
[[nodiscard]] std::shared_ptr<HookOfModule> detached_hook_of(c10d::GradBucket& bucket);

}  // namespace ddpdiag
