// Tells autograd about memory that we wrote to.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddpdiag {

// Like an in-place operation, so that autograd notices if it had kept the old values for a backward pass.
inline void note_change(const at::Tensor& tensor) {
    if (!tensor.is_inference()) {
        tensor.unsafeGetTensorImpl()->bump_version();
    }
}

}  // namespace ddpdiag
