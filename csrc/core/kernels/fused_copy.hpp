// One pass over gradient memory: copy, scale, cast and statistics (docs/flattening.md).
//
// Every function may be called by several threads at once on disjoint targets. Results, statistics included,
// have the same bits on every CPU and with every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddpdiag {

enum class Element : std::uint8_t { f32, f64, f16, bf16 };

[[nodiscard]] constexpr std::size_t size_of(Element element) noexcept {
    switch (element) {
        case Element::f64:
            return 8;
        case Element::f32:
            return 4;
        default:
            return 2;
    }
}

inline constexpr std::uint64_t no_index = ~std::uint64_t{0};

// Statistics of the values after scaling and before rounding to the target's type: f64 values for f64
// sources, f32 values for all others. An f32 value that only the cast to f16 turns into infinity counts as
// finite.
struct GradientStatistics {
    // Summed in double precision, so that a vector of n values is right to a relative error of (n/16 + 5) * 2^-53
    // (f32, f16 and bf16, whose squares are exact) or (n/16 + 6) * 2^-53 (f64). Like torch's norm, NaN if a
    // value is NaN, infinite if one is infinite or the square of an f64 overflows.
    double sum_squares = 0;
    // Like torch's x.abs().max(): NaN if a value is NaN; 0 for no values.
    double absolute_maximum = 0;
    std::uint64_t non_finite = 0;  // how many are infinite or NaN
    std::uint64_t first_non_finite = no_index;

    // Adds the statistics of the values that begin `offset` values after ours.
    void merge(const GradientStatistics& later, std::uint64_t offset) noexcept;
};

// target[i] = cast(source[i] * scale) for `count` values, with the statistics of all of them.
//
// The product is taken in f32, with `scale` rounded to f32, unless the source is f64; a scale of 1 leaves every
// value as it is. Casts round to nearest, ties to even; f64 goes to a 16-bit type by way of f32, as in torch. NaN
// in bf16 is 0xFFFF, as from torch's vectorised casts; NaN in f16 keeps sign and leading payload and is quiet. A
// copy without a cast keeps all bits of a NaN.
//
// The two vectors must be the same memory (then of the same type) or not overlap. `streaming` stores bypass
// the caches: for large targets (docs/flattening.md); for smaller ones they cost time.
GradientStatistics fused_copy(const void* source, Element from, void* target, Element to, std::size_t count,
                              double scale, bool streaming) noexcept;

// The statistics alone.
[[nodiscard]] GradientStatistics statistics(const void* source, Element type, std::size_t count) noexcept;

// output[i] = inputs[0][i] + inputs[1][i] + ..., added in f32 in this order and rounded once. Zeros for no inputs.
// `output` may be one of the inputs.
void sum_bf16(const std::uint16_t* const* inputs, std::size_t input_count, std::uint16_t* output,
              std::size_t count) noexcept;
void sum_f16(const std::uint16_t* const* inputs, std::size_t input_count, std::uint16_t* output,
             std::size_t count) noexcept;

// The same sums, rounded to 16 bits and returned as f32. `output` must not overlap the inputs.
void sum_bf16(const std::uint16_t* const* inputs, std::size_t input_count, float* output,
              std::size_t count) noexcept;
void sum_f16(const std::uint16_t* const* inputs, std::size_t input_count, float* output,
             std::size_t count) noexcept;

}  // namespace ddpdiag
