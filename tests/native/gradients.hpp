// Vectors of every element type for the tests of the kernels, special values among them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/kernels/fused_copy.hpp"

namespace gradients {

using ddpdiag::Element;

inline constexpr std::array<Element, 4> all_elements = {Element::f32, Element::f64, Element::f16,
                                                        Element::bf16};

using Bytes = std::vector<std::byte>;

inline void put_bits(Bytes& to, Element element, std::size_t index, std::uint64_t bits) {
    const std::size_t size = ddpdiag::size_of(element);
    // Little-endian, as are all systems that this is for.
    std::memcpy(to.data() + index * size, &bits, size);
}

// Random bits: all exponents are equally likely, infinities and NaN with payloads come by themselves.
inline Bytes any_bits(Element element, std::size_t count, std::uint32_t seed) {
    std::mt19937_64 random(seed);
    Bytes result(count * ddpdiag::size_of(element));
    for (std::size_t i = 0; i < count; ++i) {
        put_bits(result, element, i, random());
    }
    return result;
}

// Finite values of usual gradients: signs, zeros, six orders of magnitude.
inline std::vector<float> usual(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> spread(0, 1);
    std::vector<float> result(count);
    for (std::size_t i = 0; i < count; ++i) {
        const float magnitude = std::ldexp(1.0F, static_cast<int>(random() % 20U) - 15);
        result[i] = i % 17 == 3 ? -0.0F : spread(random) * magnitude;
    }
    return result;
}

inline Bytes finite(Element element, std::size_t count, std::uint32_t seed) {
    const std::vector<float> values = usual(count, seed);
    Bytes result(count * ddpdiag::size_of(element));
    ddpdiag::fused_copy(values.data(), Element::f32, result.data(), element, count, 1.0, false);
    return result;
}

}  // namespace gradients
