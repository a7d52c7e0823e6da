// A group's collectives, as paths begin them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "torch/group.hpp"
#include "torch/reduce/path.hpp"

namespace ddpdiag {

[[nodiscard]] Begun begun_by(c10::intrusive_ptr<c10d::Work> work);

// Enqueues the sum of `tensor` over the group, in place.
[[nodiscard]] Begun all_reduce(const Group& group, const at::Tensor& tensor);

}  // namespace ddpdiag
