// Makes the sum over ranks an average: every rank divides what it puts in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ddpdiag {

// As buffer.div_(ranks), to the same bits. Division first, so that half precision doesn't overflow.
void divide(const at::Tensor& buffer, std::int64_t ranks);

}  // namespace ddpdiag
