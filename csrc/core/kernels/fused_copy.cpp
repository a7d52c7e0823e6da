#include "core/kernels/fused_copy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/kernels/fused_levels.hpp"

#ifdef DDPDIAG_X86_64
#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

namespace ddpdiag {
namespace {

std::size_t index_of(Element element) noexcept {
    return static_cast<std::size_t>(element);
}

#ifdef DDPDIAG_X86_64
struct CpuFacts {
    std::uint32_t leaf1_ecx = 0;
    std::uint32_t leaf7_ebx = 0;
    std::uint64_t saved_state = 0;  // which registers the operating system preserves over a thread switch
};

constexpr bool has_bit(std::uint32_t bits, unsigned bit) noexcept {
    return ((bits >> bit) & 1U) != 0;
}

CpuFacts cpu_facts() noexcept {
    CpuFacts facts;
    constexpr unsigned os_saves = 27;
#ifdef _MSC_VER
    std::array<int, 4> registers{};
    __cpuid(registers.data(), 0);
    const int leaves = registers[0];
    __cpuid(registers.data(), 1);
    facts.leaf1_ecx = static_cast<std::uint32_t>(registers[2]);
    if (leaves >= 7) {
        __cpuidex(registers.data(), 7, 0);
        facts.leaf7_ebx = static_cast<std::uint32_t>(registers[1]);
    }
    if (has_bit(facts.leaf1_ecx, os_saves)) {
        facts.saved_state = _xgetbv(0);
    }
#else
    std::uint32_t eax = 0;
    std::uint32_t ebx = 0;
    std::uint32_t ecx = 0;
    std::uint32_t edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
        facts.leaf1_ecx = ecx;
    }
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
        facts.leaf7_ebx = ebx;
    }
    if (has_bit(facts.leaf1_ecx, os_saves)) {
        // The intrinsic would need a separate target attribute. NOLINTNEXTLINE(hicpp-no-assembler)
        __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
        facts.saved_state = (static_cast<std::uint64_t>(edx) << 32U) | eax;
    }
#endif
    return facts;
}

Level find_level() noexcept {
    constexpr unsigned fma = 12;
    constexpr unsigned avx = 28;
    constexpr unsigned f16c = 29;
    constexpr unsigned avx2 = 5;
    constexpr unsigned avx512f = 16;
    constexpr unsigned avx512bw = 30;
    constexpr std::uint64_t vectors_saved = 0x6;
    constexpr std::uint64_t wide_vectors_saved = 0xe6;
    const CpuFacts facts = cpu_facts();
    const bool has_avx2 = has_bit(facts.leaf1_ecx, avx) && has_bit(facts.leaf1_ecx, f16c) &&
                          has_bit(facts.leaf1_ecx, fma) && has_bit(facts.leaf7_ebx, avx2) &&
                          (facts.saved_state & vectors_saved) == vectors_saved;
    const bool has_avx512 = has_avx2 && has_bit(facts.leaf7_ebx, avx512f) &&
                            has_bit(facts.leaf7_ebx, avx512bw) &&
                            (facts.saved_state & wide_vectors_saved) == wide_vectors_saved;
    if (has_avx512) {
        return Level::avx512;
    }
    return has_avx2 ? Level::avx2 : Level::scalar;
}
#else
Level find_level() noexcept {
    return Level::scalar;
}
#endif

}  // namespace

Level best_level() noexcept {
    static const Level level = find_level();
    return level;
}

const KernelTable* kernels(Level level) noexcept {
    if (level > best_level()) {
        return nullptr;
    }
#ifdef DDPDIAG_X86_64
    switch (level) {
        case Level::avx512:
            return &avx512_kernels;
        case Level::avx2:
            return &avx2_kernels;
        case Level::scalar:
            break;
    }
#endif
    return &scalar_kernels;
}

const KernelTable& best_kernels() noexcept {
    static const KernelTable& table = *kernels(best_level());
    return table;
}

void GradientStatistics::merge(const GradientStatistics& later, std::uint64_t offset) noexcept {
    sum_squares += later.sum_squares;
    if (std::isnan(sum_squares)) {
        // One NaN for all cases: the compiler chooses which of two NaN an addition passes on.
        sum_squares = std::numeric_limits<double>::quiet_NaN();
        absolute_maximum = sum_squares;
    } else {
        absolute_maximum = std::max(absolute_maximum, later.absolute_maximum);
    }
    non_finite += later.non_finite;
    if (first_non_finite == no_index && later.first_non_finite != no_index) {
        first_non_finite = later.first_non_finite + offset;
    }
}

GradientStatistics fused_copy(const KernelTable& kernels, const void* source, Element from, void* target,
                              Element to, std::size_t count, double scale, bool streaming) noexcept {
    const KernelTable::Copy copy = kernels.copy[index_of(from)][index_of(to)];
    if (!streaming) {
        return copy(source, target, count, scale, false);
    }
    // Stores that bypass the caches write whole, aligned lines: the values before the first one are copied as
    // usual.
    const std::size_t past = reinterpret_cast<std::uintptr_t>(target) % streaming_alignment;
    const std::size_t head = std::min(count, past == 0 ? 0 : (streaming_alignment - past) / size_of(to));
    GradientStatistics result = copy(source, target, head, scale, false);
    result.merge(copy(static_cast<const std::byte*>(source) + head * size_of(from),
                      static_cast<std::byte*>(target) + head * size_of(to), count - head, scale, true),
                 head);
    return result;
}

GradientStatistics fused_copy(const void* source, Element from, void* target, Element to, std::size_t count,
                              double scale, bool streaming) noexcept {
    return fused_copy(best_kernels(), source, from, target, to, count, scale, streaming);
}

GradientStatistics statistics(const void* source, Element type, std::size_t count) noexcept {
    return best_kernels().statistics[index_of(type)](source, nullptr, count, 1.0, false);
}

void sum_bf16(const std::uint16_t* const* inputs, std::size_t input_count, std::uint16_t* output,
              std::size_t count) noexcept {
    best_kernels().sum_bf16(inputs, input_count, output, count);
}

void sum_f16(const std::uint16_t* const* inputs, std::size_t input_count, std::uint16_t* output,
             std::size_t count) noexcept {
    best_kernels().sum_f16(inputs, input_count, output, count);
}

void sum_bf16(const std::uint16_t* const* inputs, std::size_t input_count, float* output,
              std::size_t count) noexcept {
    best_kernels().sum_bf16_to_f32(inputs, input_count, output, count);
}

void sum_f16(const std::uint16_t* const* inputs, std::size_t input_count, float* output,
             std::size_t count) noexcept {
    best_kernels().sum_f16_to_f32(inputs, input_count, output, count);
}

}  // namespace ddpdiag
