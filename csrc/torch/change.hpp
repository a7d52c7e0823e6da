// What autograd is told of memory that we wrote to.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddpdiag {

// As an operation in place does, so that autograd sees if it had kept the old values for a backward pass.
inline void note_change(const at::Tensor& tensor) {
    if (!tensor.is_inference()) {
        tensor.unsafeGetTensorImpl()->bump_version();
    }
}

}  // namespace ddpdiag
