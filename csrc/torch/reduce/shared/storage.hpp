// Moves a tensor's storage into shared memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "core/shared/block.hpp"

namespace ddpdiag {

// The block that holds the storage already; nullptr: none does.
[[nodiscard]] std::shared_ptr<const SharedBlock> shared_block_of(const at::Tensor& tensor);

// Copies the storage of a CPU tensor into a block of its own, and makes it the tensor's and that of all its views. The
// storage owns the block: tensors stay valid as long as somebody has them. Throws platform::SystemError: no memory is
// left.
std::shared_ptr<const SharedBlock> move_to_shared_memory(const at::Tensor& tensor);

// The other way round, into memory of this process alone. The block stays as it is for those who hold it.
void move_out_of_shared_memory(const at::Tensor& tensor);

}  // namespace ddpdiag
