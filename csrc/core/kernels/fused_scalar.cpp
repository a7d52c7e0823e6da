// The kernels in plain C++: for processors that are not x86-64 or lack AVX2, and the reference in tests of
// the others. Loops of a fixed length without branches, which compilers vectorise.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/kernels/finite.hpp"
#include "core/kernels/fused_levels.hpp"
#include "core/kernels/half.hpp"

#define KERNEL DDPDIAG_INLINE
#define KERNEL_ENTRY

namespace ddpdiag {
namespace {

struct Floats {
    std::array<float, 16> values;
};
struct Doubles {
    std::array<double, 16> values;
};

KERNEL Floats zeros_f() {
    return {};
}
KERNEL Doubles zeros_d() {
    return {};
}
KERNEL Floats spread_f(float value) {
    Floats result{};
    result.values.fill(value);
    return result;
}
KERNEL Doubles spread_d(double value) {
    Doubles result{};
    result.values.fill(value);
    return result;
}

template <typename Values>
KERNEL Values mul(Values values, const Values& factors) {
    for (std::size_t i = 0; i < 16; ++i) {
        values.values[i] *= factors.values[i];
    }
    return values;
}
template <typename Values>
KERNEL Values div(Values values, const Values& divisors) {
    for (std::size_t i = 0; i < 16; ++i) {
        values.values[i] /= divisors.values[i];
    }
    return values;
}
template <typename Values>
KERNEL Values add(Values left, const Values& right) {
    for (std::size_t i = 0; i < 16; ++i) {
        left.values[i] += right.values[i];
    }
    return left;
}
template <typename Values>
KERNEL Values absolute_max(Values largest, const Values& next) {
    for (std::size_t i = 0; i < 16; ++i) {
        const auto magnitude = std::abs(next.values[i]);
        largest.values[i] = magnitude > largest.values[i] ? magnitude : largest.values[i];
    }
    return largest;
}
template <typename Values>
KERNEL void add_squares(Doubles& sums, const Values& next) {
    for (std::size_t i = 0; i < 16; ++i) {
        const auto wide = static_cast<double>(next.values[i]);
        sums.values[i] += wide * wide;
    }
}
template <typename Values>
KERNEL std::uint32_t not_finite(const Values& next) {
    using Value = std::remove_cvref_t<decltype(next.values[0])>;
    unsigned any = 0;
    for (std::size_t i = 0; i < 16; ++i) {
        any |= static_cast<unsigned>(!(std::abs(next.values[i]) <= std::numeric_limits<Value>::max()));
    }
    if (any == 0) [[likely]] {
        return 0;
    }
    std::uint32_t which = 0;
    for (std::size_t i = 0; i < 16; ++i) {
        which |= static_cast<std::uint32_t>(!std::isfinite(next.values[i])) << i;
    }
    return which;
}

KERNEL Floats load_f32(const std::byte* from) {
    Floats result{};
    std::memcpy(result.values.data(), from, sizeof result.values);
    return result;
}
KERNEL Doubles load_f64(const std::byte* from) {
    Doubles result{};
    std::memcpy(result.values.data(), from, sizeof result.values);
    return result;
}
KERNEL Floats load_f16(const std::byte* from) {
    std::array<std::uint16_t, 16> bits{};
    std::memcpy(bits.data(), from, sizeof bits);
    Floats result{};
    for (std::size_t i = 0; i < 16; ++i) {
        result.values[i] = f32_of_f16(bits[i]);
    }
    return result;
}
KERNEL Floats load_bf16(const std::byte* from) {
    std::array<std::uint16_t, 16> bits{};
    std::memcpy(bits.data(), from, sizeof bits);
    Floats result{};
    for (std::size_t i = 0; i < 16; ++i) {
        result.values[i] = f32_of_bf16(bits[i]);
    }
    return result;
}

KERNEL Doubles widen(const Floats& from) {
    Doubles result{};
    for (std::size_t i = 0; i < 16; ++i) {
        result.values[i] = static_cast<double>(from.values[i]);
    }
    return result;
}
KERNEL Floats narrow(const Doubles& from) {
    Floats result{};
    for (std::size_t i = 0; i < 16; ++i) {
        result.values[i] = static_cast<float>(from.values[i]);
    }
    return result;
}

// There is no portable way to bypass the caches: `streaming` has no effect here.
KERNEL void store_f32(std::byte* to, const Floats& next, bool /*streaming*/) {
    std::memcpy(to, next.values.data(), sizeof next.values);
}
KERNEL void store_f64(std::byte* to, const Doubles& next, bool /*streaming*/) {
    std::memcpy(to, next.values.data(), sizeof next.values);
}
KERNEL void store_f16(std::byte* to, const Floats& low, const Floats& high, bool /*streaming*/) {
    std::array<std::uint16_t, 32> bits{};
    for (std::size_t i = 0; i < 16; ++i) {
        bits[i] = f16_of_f32(low.values[i]);
        bits[i + 16] = f16_of_f32(high.values[i]);
    }
    std::memcpy(to, bits.data(), sizeof bits);
}
KERNEL void store_bf16(std::byte* to, const Floats& low, const Floats& high, bool /*streaming*/) {
    std::array<std::uint16_t, 32> bits{};
    for (std::size_t i = 0; i < 16; ++i) {
        bits[i] = bf16_of_f32(low.values[i]);
        bits[i + 16] = bf16_of_f32(high.values[i]);
    }
    std::memcpy(to, bits.data(), sizeof bits);
}
KERNEL void store_bf16_numbers(std::byte* to, const Floats& low, const Floats& high, bool /*streaming*/) {
    std::array<std::uint16_t, 32> bits{};
    for (std::size_t i = 0; i < 16; ++i) {
        bits[i] = bf16_of_number(low.values[i]);
        bits[i + 16] = bf16_of_number(high.values[i]);
    }
    std::memcpy(to, bits.data(), sizeof bits);
}
KERNEL void copy_64_bytes(std::byte* to, const std::byte* from, bool /*streaming*/) {
    std::memmove(to, from, 64);
}
// Not every processor that this is for has it.
KERNEL void fetch(const std::byte* /*from*/) {}
KERNEL void drain() {}

}  // namespace
}  // namespace ddpdiag

// In this order.
// clang-format off
#include "core/kernels/fused_kernel.hpp"
#include "core/kernels/sum_kernel.hpp"
#include "core/kernels/kernel_table.hpp"
// clang-format on

namespace ddpdiag {
const KernelTable scalar_kernels = table();
}
