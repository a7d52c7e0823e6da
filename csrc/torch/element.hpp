// torch's types in the core's terms: in its kernels, and in its records.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/kernels/fused_copy.hpp"
#include "core/trace/record.hpp"

namespace ddpdiag {

[[nodiscard]] constexpr std::optional<Element> element_of(c10::ScalarType type) noexcept {
    switch (type) {
        case c10::ScalarType::Float:
            return Element::f32;
        case c10::ScalarType::Double:
            return Element::f64;
        case c10::ScalarType::Half:
            return Element::f16;
        case c10::ScalarType::BFloat16:
            return Element::bf16;
        default:
            return std::nullopt;
    }
}

// For tensors that were checked before; throws std::invalid_argument for others.
[[nodiscard]] inline Element known_element(c10::ScalarType type) {
    const auto element = element_of(type);
    if (!element.has_value()) {
        throw std::invalid_argument("the kernels know f32, f64, f16 and bf16 only.");
    }
    return *element;
}

// What travels of an uncompressed tensor: of a sparse gradient, its values and their indices.
[[nodiscard]] inline std::uint64_t bytes_of(const at::Tensor& tensor) {
    return tensor.is_sparse() ? tensor._values().nbytes() + tensor._indices().nbytes() : tensor.nbytes();
}

// The values of a tensor of 16-bit type.
[[nodiscard]] inline const std::uint16_t* bits(const at::Tensor& tensor) {
    return static_cast<const std::uint16_t*>(tensor.const_data_ptr());
}

// sum_bf16 or sum_f16, depending on `type`.
template <typename Output>
void add_up(c10::ScalarType type, const std::vector<const std::uint16_t*>& inputs, Output* output,
            std::int64_t count) {
    const auto values = static_cast<std::size_t>(count);
    if (type == c10::ScalarType::BFloat16) {
        sum_bf16(inputs.data(), inputs.size(), output, values);
    } else {
        sum_f16(inputs.data(), inputs.size(), output, values);
    }
}

// For records, which name every type.
[[nodiscard]] constexpr Dtype dtype_of(c10::ScalarType type) noexcept {
    switch (type) {
        case c10::ScalarType::Float:
            return Dtype::float32;
        case c10::ScalarType::Double:
            return Dtype::float64;
        case c10::ScalarType::Half:
            return Dtype::float16;
        case c10::ScalarType::BFloat16:
            return Dtype::bfloat16;
        case c10::ScalarType::ComplexFloat:
            return Dtype::complex64;
        case c10::ScalarType::ComplexDouble:
            return Dtype::complex128;
        default:
            return Dtype::other;
    }
}

}  // namespace ddpdiag
