// The kernels behind fused_copy.hpp, once per instruction set. All levels give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/fused_copy.hpp"

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
    using Sum = void (*)(const std::uint16_t* const* inputs, std::size_t input_count, std::uint16_t* output,
                         std::size_t count);
    using WideSum = void (*)(const std::uint16_t* const* inputs, std::size_t input_count, float* output,
                             std::size_t count);

    std::array<std::array<Copy, element_count>, element_count> copy;  // [from][to]
    std::array<Copy, element_count> statistics;                       // ignores the target
    Sum sum_f16;
    Sum sum_bf16;
    WideSum sum_f16_to_f32;
    WideSum sum_bf16_to_f32;
};

extern const KernelTable scalar_kernels;
#ifdef DDPDIAG_X86_64
extern const KernelTable avx2_kernels;
extern const KernelTable avx512_kernels;
#endif

// The best level that this processor and its operating system support.
[[nodiscard]] Level best_level() noexcept;
// nullptr if they do not support it.
[[nodiscard]] const KernelTable* kernels(Level level) noexcept;

// fused_copy with an explicit level.
GradientStatistics fused_copy(const KernelTable& kernels, const void* source, Element from, void* target,
                              Element to, std::size_t count, double scale, bool streaming) noexcept;

}  // namespace ddpdiag
