// torch's types as the core knows them: in its kernels, and in its records.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <stdexcept>

#include "core/fused_copy.hpp"
#include "core/record.hpp"

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

// For records, which tell every type.
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
