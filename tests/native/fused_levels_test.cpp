#include "core/kernels/fused_levels.hpp"

#include <bit>
#include <iostream>
#include <limits>

#include "check.hpp"
#include "core/kernels/half.hpp"
#include "gradients.hpp"

namespace {

using ddpdiag::Element;
using ddpdiag::GradientStatistics;
using ddpdiag::KernelTable;
using ddpdiag::Level;
using gradients::Bytes;

// The levels of this processor that are not the one to compare with.
std::vector<const KernelTable*> vector_levels() {
    std::vector<const KernelTable*> result;
    for (const Level level : {Level::avx2, Level::avx512}) {
        if (const KernelTable* kernels = ddpdiag::kernels(level)) {
            result.push_back(kernels);
        }
    }
    return result;
}

bool same_bits(const GradientStatistics& left, const GradientStatistics& right) {
    return std::bit_cast<std::uint64_t>(left.sum_squares) ==
               std::bit_cast<std::uint64_t>(right.sum_squares) &&
           std::bit_cast<std::uint64_t>(left.absolute_maximum) ==
               std::bit_cast<std::uint64_t>(right.absolute_maximum) &&
           left.non_finite == right.non_finite && left.first_non_finite == right.first_non_finite;
}

// Copies to `offset` elements past the start of a buffer that has room around; the whole buffer is compared, so
// that a store past the end is seen.
struct Copied {
    Bytes buffer;
    GradientStatistics statistics;
};

Copied copy(const KernelTable& kernels, const Bytes& source, Element from, Element to, std::size_t count,
            double scale, bool streaming, std::size_t offset) {
    Copied result{Bytes((count + offset + 40) * ddpdiag::size_of(to) + 128, std::byte{0x5a}), {}};
    // From an aligned place on, so that all levels see the same alignment.
    const std::size_t past = reinterpret_cast<std::uintptr_t>(result.buffer.data()) % 64;
    const std::size_t start = (64 - past) % 64 + offset * ddpdiag::size_of(to);
    result.statistics = ddpdiag::fused_copy(kernels, source.data(), from, result.buffer.data() + start, to,
                                            count, scale, streaming);
    result.buffer.erase(result.buffer.begin(),
                        result.buffer.begin() + static_cast<std::ptrdiff_t>((64 - past) % 64));
    result.buffer.resize((count + offset + 40) * ddpdiag::size_of(to));
    return result;
}

void compare(const Bytes& source, Element from, Element to, std::size_t count, double scale) {
    for (const bool streaming : {false, true}) {
        for (const std::size_t offset : {0U, 3U}) {
            const Copied expected =
                copy(ddpdiag::scalar_kernels, source, from, to, count, scale, streaming, offset);
            for (const KernelTable* kernels : vector_levels()) {
                const Copied got = copy(*kernels, source, from, to, count, scale, streaming, offset);
                CHECK(got.buffer == expected.buffer);
                CHECK(same_bits(got.statistics, expected.statistics));
            }
        }
    }
}

}  // namespace

CASE("what this processor has") {
    REQUIRE(ddpdiag::kernels(Level::scalar) == &ddpdiag::scalar_kernels);
    CHECK(ddpdiag::kernels(ddpdiag::best_level()) != nullptr);
    std::cout << "best level: " << check::show(ddpdiag::best_level()) << '\n';
}

CASE("all levels give the same bits for any bits") {
    for (const Element from : gradients::all_elements) {
        for (const Element to : gradients::all_elements) {
            for (const double scale : {1.0, 1.0 / 3}) {
                compare(gradients::any_bits(from, 20000, 1), from, to, 20000, scale);
            }
        }
    }
}

CASE("all levels give the same statistics of finite values") {
    for (const Element from : gradients::all_elements) {
        for (const Element to : gradients::all_elements) {
            for (const double scale : {1.0, -0.125, 1.0 / 3, 1e-42}) {
                compare(gradients::finite(from, 5001, 2), from, to, 5001, scale);
            }
        }
    }
}

CASE("all levels agree at every length") {
    for (std::size_t count = 0; count < 130; ++count) {
        const Bytes values = gradients::finite(Element::f32, count, static_cast<std::uint32_t>(count));
        compare(values, Element::f32, Element::f32, count, 0.5);
        compare(values, Element::f32, Element::bf16, count, 1.0 / 3);
        compare(values, Element::f32, Element::f16, count, 1.0);
        compare(values, Element::f32, Element::f64, count, 1.0);
    }
}

CASE("all levels survive a scale that is not finite") {
    for (const Element from : gradients::all_elements) {
        const Bytes values = gradients::finite(from, 77, 3);
        compare(values, from, Element::f32, 77, 1e300);
        compare(values, from, Element::bf16, 77, std::bit_cast<double>(0x7ff8000000000000ULL));
    }
}

CASE("every f16 and bf16, and f32 around every rounding of theirs, casts the same on all levels") {
    Bytes shorts(std::size_t{0x10000} * 2);
    Bytes floats(std::size_t{0x10000} * 4 * 8);
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        gradients::put_bits(shorts, Element::bf16, bits, bits);
        for (std::uint32_t k = 0; k < 8; ++k) {
            constexpr std::array<std::uint32_t, 8> low = {0,      1,      0x0fff, 0x1000,
                                                          0x1001, 0x7fff, 0x8000, 0x8001};
            gradients::put_bits(floats, Element::f32, bits * 8 + k, (bits << 16U) | low.at(k));
        }
    }
    for (const Element to : gradients::all_elements) {
        compare(shorts, Element::f16, to, 0x10000, 1.0);
        compare(shorts, Element::bf16, to, 0x10000, 1.0);
        compare(floats, Element::f32, to, 0x80000, 1.0);
    }
}

CASE("statistics alone are those of a copy") {
    for (const Element type : gradients::all_elements) {
        for (const std::size_t count : {0U, 5U, 64U, 1001U}) {
            const Bytes values = gradients::finite(type, count, 5);
            const auto index = static_cast<std::size_t>(type);
            const GradientStatistics expected =
                copy(ddpdiag::scalar_kernels, values, type, type, count, 1.0, false, 0).statistics;
            for (const Level level : {Level::scalar, Level::avx2, Level::avx512}) {
                if (const KernelTable* kernels = ddpdiag::kernels(level)) {
                    CHECK(same_bits(kernels->statistics.at(index)(values.data(), nullptr, count, 1.0, false),
                                    expected));
                }
            }
        }
    }
}

CASE("one value that is infinite or NaN is found, wherever it is") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const Level level : {Level::scalar, Level::avx2, Level::avx512}) {
        const KernelTable* kernels = ddpdiag::kernels(level);
        for (std::size_t at = 0; kernels != nullptr && at < 70; ++at) {
            for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
                std::vector<float> floats(70, -std::numeric_limits<float>::max());
                std::vector<double> doubles(70, std::numeric_limits<double>::denorm_min());
                CHECK(kernels->finite_f32(floats.data(), 70) && kernels->finite_f64(doubles.data(), 70));
                floats[at] = bad;
                doubles[at] = bad;
                CHECK(!kernels->finite_f32(floats.data(), 70) && !kernels->finite_f64(doubles.data(), 70));
                CHECK(kernels->finite_f32(floats.data(), at) && kernels->finite_f64(doubles.data(), at));
            }
        }
    }
}

CASE("the square of an f64 is rounded before it is added, in whole blocks and in what is left") {
    // Rounded, the second square loses its last quarter of a place. With it the two would round up.
    constexpr double first = 1.25 * 0x1p-27;
    constexpr double second = 1 + 0x1p-27;
    for (const std::size_t count : {17U, 32U, 49U}) {
        const std::size_t begin = count == 49 ? 32 : 0;
        std::vector<double> values(count);
        values[begin] = first;
        values[begin + 16] = second;  // in the same lane
        for (const Level level : {Level::scalar, Level::avx2, Level::avx512}) {
            if (const KernelTable* kernels = ddpdiag::kernels(level)) {
                const auto index = static_cast<std::size_t>(Element::f64);
                const GradientStatistics got =
                    kernels->statistics.at(index)(values.data(), nullptr, count, 1.0, false);
                CHECK_EQ(got.sum_squares, 1 + 0x1p-26);
            }
        }
    }
}

CASE("all levels sum to the same bits") {
    const auto stand_for = [](const std::vector<float>& wide, const std::vector<std::uint16_t>& bits,
                              Element type) {
        for (std::size_t i = 0; i < bits.size(); ++i) {
            const float value =
                type == Element::f16 ? ddpdiag::f32_of_f16(bits[i]) : ddpdiag::f32_of_bf16(bits[i]);
            if (std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(value)) {
                return false;
            }
        }
        return true;
    };
    for (const std::size_t count : {0U, 1U, 31U, 32U, 33U, 1000U}) {
        for (const std::size_t input_count : {1U, 2U, 5U}) {
            std::vector<Bytes> inputs;
            std::vector<const std::uint16_t*> pointers;
            for (std::size_t k = 0; k < input_count; ++k) {
                inputs.push_back(gradients::finite(Element::bf16, count, static_cast<std::uint32_t>(k)));
                pointers.push_back(reinterpret_cast<const std::uint16_t*>(inputs.back().data()));
            }
            std::vector<std::uint16_t> bf16(count);
            std::vector<std::uint16_t> f16(count);
            ddpdiag::scalar_kernels.sum_bf16(pointers.data(), input_count, bf16.data(), count);
            ddpdiag::scalar_kernels.sum_f16(pointers.data(), input_count, f16.data(), count);
            for (const Level level : {Level::scalar, Level::avx2, Level::avx512}) {
                const KernelTable* const kernels = ddpdiag::kernels(level);
                if (kernels == nullptr) {
                    continue;
                }
                std::vector<std::uint16_t> got(count);
                kernels->sum_bf16(pointers.data(), input_count, got.data(), count);
                CHECK(got == bf16);
                kernels->sum_f16(pointers.data(), input_count, got.data(), count);
                CHECK(got == f16);
                std::vector<float> wide(count);
                kernels->sum_bf16_to_f32(pointers.data(), input_count, wide.data(), count);
                CHECK(stand_for(wide, bf16, Element::bf16));
                kernels->sum_f16_to_f32(pointers.data(), input_count, wide.data(), count);
                CHECK(stand_for(wide, f16, Element::f16));
            }
        }
    }
}
