#include "torch/probe/finite_watch.hpp"

#include <cstddef>

#include "core/kernels/fused_levels.hpp"

namespace ddpdiag {

std::optional<bool> all_finite(const at::Tensor& buffer) {
    const auto type = buffer.scalar_type();
    if (!buffer.is_cpu() || buffer.is_sparse() || !buffer.is_contiguous() ||
        (type != c10::ScalarType::Float && type != c10::ScalarType::Double)) {
        return std::nullopt;
    }
    const KernelTable& kernels = best_kernels();
    const auto finite = type == c10::ScalarType::Float ? kernels.finite_f32 : kernels.finite_f64;
    return finite(buffer.const_data_ptr(), static_cast<std::size_t>(buffer.numel()));
}

}  // namespace ddpdiag
