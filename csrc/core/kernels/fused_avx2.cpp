// The kernels with AVX2, F16C and FMA. FMA only where the product is exact, so that it does not change any
// bit.
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

#define KERNEL DDPDIAG_TARGET("avx2,f16c,fma") DDPDIAG_INLINE
#define KERNEL_ENTRY DDPDIAG_TARGET("avx2,f16c,fma")

namespace ddpdiag {
namespace {

struct Floats {
    __m256 a, b;  // values 0 to 7, 8 to 15
};
struct Doubles {
    __m256d a, b, c, d;
};

KERNEL Floats zeros_f() {
    return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
KERNEL Doubles zeros_d() {
    return {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
}
KERNEL Floats spread_f(float value) {
    return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
}
KERNEL Doubles spread_d(double value) {
    const __m256d all = _mm256_set1_pd(value);
    return {all, all, all, all};
}
KERNEL Floats mul(const Floats& values, const Floats& factors) {
    return {_mm256_mul_ps(values.a, factors.a), _mm256_mul_ps(values.b, factors.b)};
}
KERNEL Doubles mul(const Doubles& values, const Doubles& factors) {
    return {_mm256_mul_pd(values.a, factors.a), _mm256_mul_pd(values.b, factors.b),
            _mm256_mul_pd(values.c, factors.c), _mm256_mul_pd(values.d, factors.d)};
}
KERNEL Floats div(const Floats& values, const Floats& divisors) {
    return {_mm256_div_ps(values.a, divisors.a), _mm256_div_ps(values.b, divisors.b)};
}
KERNEL Doubles div(const Doubles& values, const Doubles& divisors) {
    return {_mm256_div_pd(values.a, divisors.a), _mm256_div_pd(values.b, divisors.b),
            _mm256_div_pd(values.c, divisors.c), _mm256_div_pd(values.d, divisors.d)};
}
KERNEL Doubles add(const Doubles& left, const Doubles& right) {
    return {_mm256_add_pd(left.a, right.a), _mm256_add_pd(left.b, right.b), _mm256_add_pd(left.c, right.c),
            _mm256_add_pd(left.d, right.d)};
}
KERNEL Floats add(const Floats& left, const Floats& right) {
    return {_mm256_add_ps(left.a, right.a), _mm256_add_ps(left.b, right.b)};
}

KERNEL __m256 absolute(__m256 values) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), values);
}
KERNEL __m256d absolute(__m256d values) {
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), values);
}
// Returns the second operand if one is NaN, so NaN values are skipped.
KERNEL Floats absolute_max(const Floats& largest, const Floats& next) {
    return {_mm256_max_ps(absolute(next.a), largest.a), _mm256_max_ps(absolute(next.b), largest.b)};
}
KERNEL Doubles absolute_max(const Doubles& largest, const Doubles& next) {
    return {_mm256_max_pd(absolute(next.a), largest.a), _mm256_max_pd(absolute(next.b), largest.b),
            _mm256_max_pd(absolute(next.c), largest.c), _mm256_max_pd(absolute(next.d), largest.d)};
}

KERNEL __m256d low_half(__m256 values) {
    return _mm256_cvtps_pd(_mm256_castps256_ps128(values));
}
KERNEL __m256d high_half(__m256 values) {
    return _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1));
}
KERNEL Doubles widen(const Floats& from) {
    return {low_half(from.a), high_half(from.a), low_half(from.b), high_half(from.b)};
}
KERNEL __m256 joined(__m128 low, __m128 high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}
KERNEL Floats narrow(const Doubles& from) {
    return {joined(_mm256_cvtpd_ps(from.a), _mm256_cvtpd_ps(from.b)),
            joined(_mm256_cvtpd_ps(from.c), _mm256_cvtpd_ps(from.d))};
}

KERNEL void add_squares(Doubles& sums, const Floats& next) {
    const Doubles wide = widen(next);
    sums.a = _mm256_fmadd_pd(wide.a, wide.a, sums.a);
    sums.b = _mm256_fmadd_pd(wide.b, wide.b, sums.b);
    sums.c = _mm256_fmadd_pd(wide.c, wide.c, sums.c);
    sums.d = _mm256_fmadd_pd(wide.d, wide.d, sums.d);
}
KERNEL void add_squares(Doubles& sums, const Doubles& next) {
    const Doubles squares = mul(next, next);
    sums.a = _mm256_add_pd(sums.a, squares.a);
    sums.b = _mm256_add_pd(sums.b, squares.b);
    sums.c = _mm256_add_pd(sums.c, squares.c);
    sums.d = _mm256_add_pd(sums.d, squares.d);
}

KERNEL std::uint32_t not_finite(__m256 values) {
    const __m256 limit = _mm256_set1_ps(std::numeric_limits<float>::max());
    return static_cast<std::uint32_t>(
        _mm256_movemask_ps(_mm256_cmp_ps(absolute(values), limit, _CMP_NLE_UQ)));
}
KERNEL std::uint32_t not_finite(__m256d values) {
    const __m256d limit = _mm256_set1_pd(std::numeric_limits<double>::max());
    return static_cast<std::uint32_t>(
        _mm256_movemask_pd(_mm256_cmp_pd(absolute(values), limit, _CMP_NLE_UQ)));
}
KERNEL std::uint32_t not_finite(const Floats& next) {
    return not_finite(next.a) | (not_finite(next.b) << 8U);
}
KERNEL std::uint32_t not_finite(const Doubles& next) {
    return not_finite(next.a) | (not_finite(next.b) << 4U) | (not_finite(next.c) << 8U) |
           (not_finite(next.d) << 12U);
}

KERNEL __m128i load_128(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
KERNEL Floats load_f32(const std::byte* from) {
    const auto* values = reinterpret_cast<const float*>(from);
    return {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8)};
}
KERNEL Doubles load_f64(const std::byte* from) {
    const auto* values = reinterpret_cast<const double*>(from);
    return {_mm256_loadu_pd(values), _mm256_loadu_pd(values + 4), _mm256_loadu_pd(values + 8),
            _mm256_loadu_pd(values + 12)};
}
KERNEL Floats load_f16(const std::byte* from) {
    return {_mm256_cvtph_ps(load_128(from)), _mm256_cvtph_ps(load_128(from + 16))};
}
KERNEL __m256 widened_bf16(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
KERNEL Floats load_bf16(const std::byte* from) {
    return {widened_bf16(load_128(from)), widened_bf16(load_128(from + 16))};
}

KERNEL void put(std::byte* to, __m256i bits, bool streaming) {
    auto* out = reinterpret_cast<__m256i*>(to);
    if (streaming) {
        _mm256_stream_si256(out, bits);
    } else {
        _mm256_storeu_si256(out, bits);
    }
}
KERNEL void store_f32(std::byte* to, const Floats& next, bool streaming) {
    put(to, _mm256_castps_si256(next.a), streaming);
    put(to + 32, _mm256_castps_si256(next.b), streaming);
}
KERNEL void store_f64(std::byte* to, const Doubles& next, bool streaming) {
    put(to, _mm256_castpd_si256(next.a), streaming);
    put(to + 32, _mm256_castpd_si256(next.b), streaming);
    put(to + 64, _mm256_castpd_si256(next.c), streaming);
    put(to + 96, _mm256_castpd_si256(next.d), streaming);
}
KERNEL __m256i f16_of(const Floats& values) {
    const __m128i low = _mm256_cvtps_ph(values.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i high = _mm256_cvtps_ph(values.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
KERNEL void store_f16(std::byte* to, const Floats& low, const Floats& high, bool streaming) {
    put(to, f16_of(low), streaming);
    put(to + 32, f16_of(high), streaming);
}
// Like bf16_of_number and bf16_of_f32 in half.hpp, in the low half of each 32 bits.
KERNEL __m256i bf16_of_numbers(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
}
KERNEL __m256i bf16_of(__m256 values) {
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(bf16_of_numbers(values), _mm256_set1_epi32(0xffff), is_nan);
}
KERNEL __m256i packed(__m256i low, __m256i high) {
    // Packing works within each 128 bits, so the middle quarters are swapped.
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}
KERNEL void store_bf16(std::byte* to, const Floats& low, const Floats& high, bool streaming) {
    put(to, packed(bf16_of(low.a), bf16_of(low.b)), streaming);
    put(to + 32, packed(bf16_of(high.a), bf16_of(high.b)), streaming);
}
KERNEL void store_bf16_numbers(std::byte* to, const Floats& low, const Floats& high, bool streaming) {
    put(to, packed(bf16_of_numbers(low.a), bf16_of_numbers(low.b)), streaming);
    put(to + 32, packed(bf16_of_numbers(high.a), bf16_of_numbers(high.b)), streaming);
}
KERNEL void copy_64_bytes(std::byte* to, const std::byte* from, bool streaming) {
    const auto* in = reinterpret_cast<const __m256i*>(from);
    const __m256i low = _mm256_loadu_si256(in);
    const __m256i high = _mm256_loadu_si256(in + 1);
    put(to, low, streaming);
    put(to + 32, high, streaming);
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
const KernelTable avx2_kernels = table();
}
#endif
