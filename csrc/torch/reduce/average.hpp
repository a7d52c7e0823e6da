// Makes the sum over ranks an average: every rank divides its own contribution.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "core/kernels/fused_copy.hpp"
#include "torch/reduce/path.hpp"

namespace ddpdiag {

// Like buffer.div_(ranks), to the same bits. Divides first, so that half precision doesn't overflow. Whether all
// quotients are finite, where that could be seen on the way; nothing: not known.
std::optional<bool> divide(const at::Tensor& buffer, std::int64_t ranks);

// The same in one pass with the statistics of the quotients, for buffers and numbers of ranks for which that gives the
// same bits.
[[nodiscard]] bool divides_with_statistics(const at::Tensor& buffer, std::int64_t ranks);
[[nodiscard]] GradientStatistics divide_with_statistics(const at::Tensor& buffer, std::int64_t ranks);

// The first step of a path that sums the buffer as it is: divides it, with the statistics if they are asked for.
[[nodiscard]] Prepared divided_among(const at::Tensor& buffer, std::int64_t ranks, bool with_statistics);

}  // namespace ddpdiag
