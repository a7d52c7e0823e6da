// Copies many gradients into one buffer and back, in one pass each, with the kernels of core/kernels/fused_copy.hpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "core/kernels/fused_copy.hpp"
#include "torch/element.hpp"

namespace ddpdiag {

struct FlattenOptions {
    double scale = 1.0;
    // Stores to targets of more bytes bypass the caches.
    std::size_t streaming_above = 0;
    // Uses ATen's operations even on the CPU, as on all other devices.
    bool by_aten = false;
};

struct Flattened {
    at::Tensor buffer;                           // one dimension, the tensors one after another
    std::vector<GradientStatistics> statistics;  // one per tensor, of its values times the scale
};

// Throws std::invalid_argument, which says what is wrong with which tensor, before anything is written. `out` may
// be larger than needed: the buffer is then its beginning. Without `out` and `dtype` all must be of one type.
[[nodiscard]] Flattened flatten(const std::vector<at::Tensor>& tensors, const std::optional<at::Tensor>& out,
                                std::optional<at::ScalarType> dtype, const FlattenOptions& options);

// The inverse: tensor i gets its part of `buffer`, times the scale. Does not tell autograd. Throws like
// `flatten`.
void unflatten(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors,
               const FlattenOptions& options);

}  // namespace ddpdiag
