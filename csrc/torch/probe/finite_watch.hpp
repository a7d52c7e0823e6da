// Whether this rank's gradients are finite, in passes in which nobody takes their statistics.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "core/kernels/finite.hpp"

namespace ddpdiag {

// Nothing: they are not of a type that is read, or not in the host's memory. `begins_pass`: it is the first bucket of one.
[[nodiscard]] std::optional<bool> all_finite(const at::Tensor& buffer, SearchedPart& part, bool begins_pass);

}  // namespace ddpdiag
