// Makes the sum over ranks an average: every rank divides what it puts in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "core/fused_copy.hpp"

namespace ddpdiag {

// As buffer.div_(ranks), to the same bits. Division first, so that half precision doesn't overflow.
void divide(const at::Tensor& buffer, std::int64_t ranks);

// The same in one pass with the statistics of the quotients; nothing is done for buffers and numbers of ranks for which
// that would give other bits.
[[nodiscard]] std::optional<GradientStatistics> divide_with_statistics(const at::Tensor& buffer,
                                                                       std::int64_t ranks);

}  // namespace ddpdiag
