// Makes the sum over ranks an average: every rank divides its own contribution.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "core/kernels/fused_copy.hpp"

namespace ddpdiag {

// Like buffer.div_(ranks), to the same bits. Divides first, so that half precision doesn't overflow. Whether all
// quotients are finite, where that could be seen on the way; nothing: not known.
std::optional<bool> divide(const at::Tensor& buffer, std::int64_t ranks);

// The same in one pass with the statistics of the quotients, for buffers and numbers of ranks for which that gives the
// same bits.
[[nodiscard]] bool divides_with_statistics(const at::Tensor& buffer, std::int64_t ranks);
[[nodiscard]] GradientStatistics divide_with_statistics(const at::Tensor& buffer, std::int64_t ranks);

}  // namespace ddpdiag
