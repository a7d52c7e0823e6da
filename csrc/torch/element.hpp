// torch's floating-point types as the core's kernels know them.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <stdexcept>

#include "core/fused_copy.hpp"

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

}  // namespace ddpdiag
