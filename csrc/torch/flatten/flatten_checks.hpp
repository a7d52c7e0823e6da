// What can be wrong with the arguments of flatten and unflatten.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddpdiag {

// All are dense, real, of a known type, with memory, and on one device. Throws std::invalid_argument
// otherwise.
void check_tensors(const std::vector<at::Tensor>& tensors);

// `buffer` is one of these too, has one dimension without gaps and at least `needed` elements, and shares no
// memory with a tensor.
void check_buffer(const at::Tensor& buffer, const char* name, const std::vector<at::Tensor>& tensors,
                  std::int64_t needed);

// No two of the tensors share memory: they are about to be written by several threads.
void check_disjoint(const std::vector<at::Tensor>& tensors);

}  // namespace ddpdiag
