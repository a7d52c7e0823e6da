// The kernels behind fused_copy.hpp, once per instruction set. All levels give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/kernels/fused_copy.hpp"

// Marks functions with instructions that not every x86-64 has: GCC and Clang require this, MSVC does not.
#if defined(__x86_64__) || defined(_M_X64)
#define DDPDIAG_X86_64 1
#endif
#if defined(_MSC_VER) && !defined(__clang__)
#define DDPDIAG_TARGET(instructions)
#define DDPDIAG_INLINE __forceinline
#else
#define DDPDIAG_TARGET(instructions) __attribute__((target(instructions)))
#define DDPDIAG_INLINE inline __attribute__((always_inline))
#endif

namespace ddpdiag {

enum class Level : std::uint8_t { scalar, avx2, avx512 };

inline constexpr std::size_t element_count = 4;
inline constexpr std::size_t streaming_alignment = 64;

struct KernelTable {
    // `streaming` requires a target at a multiple of streaming_alignment.
    using Copy = GradientStatistics (*)(const void* source, void* target, std::size_t count, double scale,
                                        bool streaming);
    using Finite = bool (*)(const void* values, std::size_t count);
    using Sum = void (*)(const std::uint16_t* const* inputs, std::size_t input_count, std::uint16_t* output,
                         std::size_t count);
    using WideSum = void (*)(const std::uint16_t* const* inputs, std::size_t input_count, float* output,
                             std::size_t count);

    // The same values of several buffers, divided and added up.
    struct Parts {
        const std::byte* const* inputs;  // in the order of the sum; at least one
        std::size_t input_count;
        std::byte* const* outputs;  // may be inputs; otherwise no two of all these overlap
        std::size_t output_count;
        std::size_t begin;      // of the values in each buffer, in bytes
        std::size_t count;      // values
        std::uint64_t divisor;  // of each value before it is added; at least 1
        bool stops;             // soon before the first sum that is infinite or NaN
    };
    // The number of values that are done: their sums are in all outputs. Sums of 16-bit values are f32, rounded once.
    using SumIntoAll = std::size_t (*)(const Parts& parts);

    std::array<std::array<Copy, element_count>, element_count> copy;  // [from][to]
    std::array<Copy, element_count> statistics;                       // ignores the target
    Finite finite_f32;  // whether none of them is infinite or NaN
    Finite finite_f64;
    Sum sum_f16;
    Sum sum_bf16;
    WideSum sum_f16_to_f32;
    WideSum sum_bf16_to_f32;
    std::array<SumIntoAll, element_count> sum_into_all;
};

extern const KernelTable scalar_kernels;
#ifdef DDPDIAG_X86_64
extern const KernelTable avx2_kernels;
extern const KernelTable avx512_kernels;
#endif

// The kernels of the best level.
[[nodiscard]] const KernelTable& best_kernels() noexcept;
// The best level that this processor and its operating system support.
[[nodiscard]] Level best_level() noexcept;
// nullptr if they do not support it.
[[nodiscard]] const KernelTable* kernels(Level level) noexcept;

// fused_copy with an explicit level.
GradientStatistics fused_copy(const KernelTable& kernels, const void* source, Element from, void* target,
                              Element to, std::size_t count, double scale, bool streaming) noexcept;

}  // namespace ddpdiag
