// The kernels with AVX-512: the foundation instructions, and those for bytes and words, which all such processors but
// the first few have.
#include "core/kernels/fused_levels.hpp"

#ifdef DDPDIAG_X86_64
#include <immintrin.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/kernels/finite.hpp"
#include "core/kernels/half.hpp"

#define KERNEL DDPDIAG_TARGET("avx512f,avx512bw") DDPDIAG_INLINE
#define KERNEL_ENTRY DDPDIAG_TARGET("avx512f,avx512bw")

namespace ddpdiag {
namespace {

struct Floats {
    __m512 a;
};
struct Doubles {
    __m512d a, b;  // values 0 to 7, 8 to 15
};

KERNEL Floats zeros_f() {
    return {_mm512_setzero_ps()};
}
KERNEL Doubles zeros_d() {
    return {_mm512_setzero_pd(), _mm512_setzero_pd()};
}
KERNEL Floats spread_f(float value) {
    return {_mm512_set1_ps(value)};
}
KERNEL Doubles spread_d(double value) {
    return {_mm512_set1_pd(value), _mm512_set1_pd(value)};
}
KERNEL Floats mul(const Floats& values, const Floats& factors) {
    return {_mm512_mul_ps(values.a, factors.a)};
}
KERNEL Doubles mul(const Doubles& values, const Doubles& factors) {
    return {_mm512_mul_pd(values.a, factors.a), _mm512_mul_pd(values.b, factors.b)};
}
KERNEL Floats div(const Floats& values, const Floats& divisors) {
    return {_mm512_div_ps(values.a, divisors.a)};
}
KERNEL Doubles div(const Doubles& values, const Doubles& divisors) {
    return {_mm512_div_pd(values.a, divisors.a), _mm512_div_pd(values.b, divisors.b)};
}
KERNEL Doubles add(const Doubles& left, const Doubles& right) {
    return {_mm512_add_pd(left.a, right.a), _mm512_add_pd(left.b, right.b)};
}
KERNEL Floats add(const Floats& left, const Floats& right) {
    return {_mm512_add_ps(left.a, right.a)};
}
// Returns the second operand if one is NaN, so NaN values are skipped.
KERNEL Floats absolute_max(const Floats& largest, const Floats& next) {
    return {_mm512_max_ps(_mm512_abs_ps(next.a), largest.a)};
}
KERNEL Doubles absolute_max(const Doubles& largest, const Doubles& next) {
    return {_mm512_max_pd(_mm512_abs_pd(next.a), largest.a), _mm512_max_pd(_mm512_abs_pd(next.b), largest.b)};
}

KERNEL __m256 upper(__m512 values) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(values), 1));
}
KERNEL Doubles widen(const Floats& from) {
    return {_mm512_cvtps_pd(_mm512_castps512_ps256(from.a)), _mm512_cvtps_pd(upper(from.a))};
}
KERNEL Floats narrow(const Doubles& from) {
    const __m512d low = _mm512_castps_pd(_mm512_castps256_ps512(_mm512_cvtpd_ps(from.a)));
    const __m256d high = _mm256_castps_pd(_mm512_cvtpd_ps(from.b));
    return {_mm512_castpd_ps(_mm512_insertf64x4(low, high, 1))};
}
KERNEL void add_squares(Doubles& sums, const Floats& next) {
    const Doubles wide = widen(next);
    sums.a = _mm512_fmadd_pd(wide.a, wide.a, sums.a);
    sums.b = _mm512_fmadd_pd(wide.b, wide.b, sums.b);
}
KERNEL void add_squares(Doubles& sums, const Doubles& next) {
    const Doubles squares = mul(next, next);
    sums.a = _mm512_add_pd(sums.a, squares.a);
    sums.b = _mm512_add_pd(sums.b, squares.b);
}
KERNEL std::uint32_t not_finite(const Floats& next) {
    const __m512 limit = _mm512_set1_ps(std::numeric_limits<float>::max());
    return _mm512_cmp_ps_mask(_mm512_abs_ps(next.a), limit, _CMP_NLE_UQ);
}
KERNEL std::uint32_t not_finite(const Doubles& next) {
    const __m512d limit = _mm512_set1_pd(std::numeric_limits<double>::max());
    const std::uint32_t low = _mm512_cmp_pd_mask(_mm512_abs_pd(next.a), limit, _CMP_NLE_UQ);
    const std::uint32_t high = _mm512_cmp_pd_mask(_mm512_abs_pd(next.b), limit, _CMP_NLE_UQ);
    return low | (high << 8U);
}

KERNEL __m256i load_256(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
KERNEL Floats load_f32(const std::byte* from) {
    return {_mm512_loadu_ps(from)};
}
KERNEL Doubles load_f64(const std::byte* from) {
    return {_mm512_loadu_pd(from), _mm512_loadu_pd(from + 64)};
}
KERNEL Floats load_f16(const std::byte* from) {
    return {_mm512_cvtph_ps(load_256(from))};
}
KERNEL Floats load_bf16(const std::byte* from) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_256(from)), 16))};
}

KERNEL void put(std::byte* to, __m512i bits, bool streaming) {
    if (streaming) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits);
    } else {
        _mm512_storeu_si512(to, bits);
    }
}
KERNEL void store_f32(std::byte* to, const Floats& next, bool streaming) {
    put(to, _mm512_castps_si512(next.a), streaming);
}
KERNEL void store_f64(std::byte* to, const Doubles& next, bool streaming) {
    put(to, _mm512_castpd_si512(next.a), streaming);
    put(to + 64, _mm512_castpd_si512(next.b), streaming);
}
KERNEL __m512i joined(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
KERNEL __m256i f16_of(__m512 values) {
    return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
KERNEL void store_f16(std::byte* to, const Floats& low, const Floats& high, bool streaming) {
    put(to, joined(f16_of(low.a), f16_of(high.a)), streaming);
}
// Like bf16_of_number and bf16_of_f32 in half.hpp, in the high half of each 32 bits. Not the processor's own
// instruction: that one treats subnormals as zero.
KERNEL __m512i bf16_of_numbers(__m512 values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
}
KERNEL __m512i bf16_of(__m512 values) {
    const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(bf16_of_numbers(values), is_nan, _mm512_set1_epi32(-1));
}
KERNEL __m512i high_halves(__m512i low, __m512i high) {
    // Every second 16 bits of the 64 in both, in their order; one instruction where a conversion of each takes five.
    constexpr std::array<std::uint16_t, 32> odd = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                   23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                   45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return _mm512_permutex2var_epi16(low, _mm512_loadu_si512(odd.data()), high);
}
KERNEL void store_bf16(std::byte* to, const Floats& low, const Floats& high, bool streaming) {
    put(to, high_halves(bf16_of(low.a), bf16_of(high.a)), streaming);
}
KERNEL void store_bf16_numbers(std::byte* to, const Floats& low, const Floats& high, bool streaming) {
    put(to, high_halves(bf16_of_numbers(low.a), bf16_of_numbers(high.a)), streaming);
}
KERNEL void copy_64_bytes(std::byte* to, const std::byte* from, bool streaming) {
    put(to, _mm512_loadu_si512(from), streaming);
}
KERNEL void fetch(const std::byte* from) {
    _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T1);
}
KERNEL void drain() {
    _mm_sfence();
}

}  // namespace
}  // namespace ddpdiag

// In this order.
// clang-format off
#include "core/kernels/fused_kernel.hpp"
#include "core/kernels/sum_kernel.hpp"
#include "core/kernels/kernel_table.hpp"
// clang-format on

namespace ddpdiag {
const KernelTable avx512_kernels = table();
}
#endif
