// A checksum of some values from all over a tensor: whether two ranks were given the same batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ddpdiag {

// Goes on from `mark` over the type, the shape and at most `most` values. The time that takes does not grow with the
// tensor. 0: the tensor cannot be read here without a copy or a wait, or has no values.
[[nodiscard]] std::uint64_t mark_of_values(const at::Tensor& tensor, std::int64_t most, std::uint64_t mark);

}  // namespace ddpdiag
