// Looks at a tensor's values where they lie in memory: no operation of torch's, which a mode of the script would see.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddpdiag {

// Of some values from all over a tensor, by which two ranks tell whether they were given the same batch. Goes on from `mark` over the type, the shape and at most `most` values. The time that takes does not grow with the
// tensor. 0: the tensor cannot be read here without a copy or a wait, or has no values.
[[nodiscard]] std::uint64_t mark_of_values(const at::Tensor& tensor, std::int64_t most, std::uint64_t mark);

// Whether no parameter has a gradient other than 0; one that cannot be read here may have any.
[[nodiscard]] bool are_without_gradients(const std::vector<at::Tensor>& parameters);

}  // namespace ddpdiag
