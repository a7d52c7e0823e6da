#include "torch/average.hpp"

#include <ATen/Functions.h>

namespace ddpdiag {
namespace {

// Above that, torch would divide the work among threads, and its way to the division, some 4 us, is little beside it.
constexpr std::size_t small = std::size_t{128} << 10U;

template <typename Value>
void divide_all(const at::Tensor& buffer, std::int64_t ranks) {
    auto* const values = static_cast<Value*>(buffer.mutable_data_ptr());
    const auto divisor = static_cast<Value>(ranks);
    const auto count = static_cast<std::size_t>(buffer.numel());
    for (std::size_t i = 0; i < count; ++i) {
        values[i] /= divisor;
    }
    // As an operation in place does, so that autograd sees if it had kept the old values.
    if (!buffer.is_inference()) {
        buffer.unsafeGetTensorImpl()->bump_version();
    }
}

}  // namespace

void divide(const at::Tensor& buffer, std::int64_t ranks) {
    const auto type = buffer.scalar_type();
    if (buffer.is_cpu() && !buffer.is_sparse() && buffer.is_contiguous() && buffer.nbytes() <= small) {
        if (type == c10::ScalarType::Float) {
            return divide_all<float>(buffer, ranks);
        }
        if (type == c10::ScalarType::Double) {
            return divide_all<double>(buffer, ranks);
        }
    }
    buffer.div_(ranks);
}

}  // namespace ddpdiag
