// Casts between f32 and the 16-bit types with the same bits as the processors' own instructions. Without
// branches, so that a compiler can vectorise loops over them.
#pragma once

#include <bit>
#include <cstdint>

namespace ddpdiag {

[[nodiscard]] inline float f32_of_bf16(std::uint16_t value) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

// Of a value that is not NaN.
[[nodiscard]] inline std::uint16_t bf16_of_number(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    // Half of the last place, less one if the last place is already even: ties go to even.
    return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

[[nodiscard]] inline std::uint16_t bf16_of_f32(float value) noexcept {
    const bool is_nan = (std::bit_cast<std::uint32_t>(value) & 0x7fffffffU) > 0x7f800000U;
    return is_nan ? std::uint16_t{0xffffU} : bf16_of_number(value);
}

[[nodiscard]] inline float f32_of_f16(std::uint16_t value) noexcept {
    const std::uint32_t sign = (value & 0x8000U) << 16U;
    const std::uint32_t magnitude = value & 0x7fffU;
    const std::uint32_t shifted = magnitude << 13U;
    // Normal numbers: the exponent's bias grows by 112. Infinity and NaN: to the largest exponent, NaN made quiet.
    const std::uint32_t normal = shifted + (112U << 23U);
    const std::uint32_t special = shifted | 0x7f800000U | (magnitude > 0x7c00U ? 0x00400000U : 0U);
    // Subnormal: 2^-24 times the integer, which is exact.
    const float small = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
    const std::uint32_t finite = magnitude < 0x0400U ? std::bit_cast<std::uint32_t>(small) : normal;
    return std::bit_cast<float>(sign | (magnitude >= 0x7c00U ? special : finite));
}

[[nodiscard]] inline std::uint16_t f16_of_f32(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    // The exponent's bias shrinks by 112; 65520 and more round up to infinity by themselves.
    const std::uint32_t normal = (magnitude - (112U << 23U) + 0x0fffU + ((magnitude >> 13U) & 1U)) >> 13U;
    // Below 2^-14: adding 0.5 moves the bits that stay to the end of the mantissa and rounds the rest away.
    const float moved = std::bit_cast<float>(magnitude < 0x38800000U ? magnitude : 0U) + 0.5F;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(moved) - std::bit_cast<std::uint32_t>(0.5F);
    const std::uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
    const std::uint32_t nan = 0x7e00U | ((magnitude >> 13U) & 0x03ffU);
    const std::uint32_t special = magnitude > 0x7f800000U ? nan : 0x7c00U;
    return static_cast<std::uint16_t>(sign | (magnitude >= 0x47800000U ? special : finite));
}

}  // namespace ddpdiag
