#include "torch/probe/finite_watch.hpp"

#include <cstdint>

#include "core/kernels/finite.hpp"

namespace ddpdiag {
namespace {

template <typename Value>
bool finite(const at::Tensor& buffer) {
    const auto* const values = static_cast<const Value*>(buffer.const_data_ptr());
    const std::int64_t count = buffer.numel();
    AllFinite<Value> seen;
    for (std::int64_t i = 0; i < count; ++i) {
        seen.see(values[i]);
    }
    return seen.so_far();
}

}  // namespace

std::optional<bool> all_finite(const at::Tensor& buffer) {
    const auto type = buffer.scalar_type();
    if (!buffer.is_cpu() || buffer.is_sparse() || !buffer.is_contiguous() ||
        (type != c10::ScalarType::Float && type != c10::ScalarType::Double)) {
        return std::nullopt;
    }
    return type == c10::ScalarType::Float ? finite<float>(buffer) : finite<double>(buffer);
}

}  // namespace ddpdiag
