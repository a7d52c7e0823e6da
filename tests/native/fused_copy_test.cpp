#include "core/kernels/fused_copy.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "check.hpp"
#include "gradients.hpp"

namespace {

using ddpdiag::Element;
using ddpdiag::fused_copy;
using ddpdiag::GradientStatistics;
using ddpdiag::no_index;

constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::uint16_t cast(float value, Element to) {
    std::uint16_t bits = 0;
    fused_copy(&value, Element::f32, &bits, to, 1, 1.0, false);
    return bits;
}

float widened(std::uint16_t bits, Element from) {
    float value = 0;
    fused_copy(&bits, from, &value, Element::f32, 1, 1.0, false);
    return value;
}

GradientStatistics of(const std::vector<float>& values) {
    return ddpdiag::statistics(values.data(), Element::f32, values.size());
}

}  // namespace

CASE("bf16 rounds to nearest, ties to even") {
    const auto bf16 = [](std::uint32_t bits) { return cast(std::bit_cast<float>(bits), Element::bf16); };
    CHECK_EQ(bf16(0x3f800000U), 0x3f80U);
    CHECK_EQ(bf16(0x3f807fffU), 0x3f80U);
    CHECK_EQ(bf16(0x3f808000U), 0x3f80U);  // a tie, down to even
    CHECK_EQ(bf16(0x3f808001U), 0x3f81U);
    CHECK_EQ(bf16(0x3f818000U), 0x3f82U);  // a tie, up to even
    CHECK_EQ(bf16(0xbf818000U), 0xbf82U);
    CHECK_EQ(bf16(0x7f7fffffU), 0x7f80U);  // the largest f32 is past the largest bf16
    CHECK_EQ(bf16(0x7f800000U), 0x7f80U);
    CHECK_EQ(bf16(0xff800000U), 0xff80U);
    CHECK_EQ(bf16(0x00000001U), 0x0000U);
    CHECK_EQ(bf16(0x00008001U), 0x0001U);  // subnormals are kept
    CHECK_EQ(bf16(0x80000000U), 0x8000U);
    CHECK_EQ(bf16(0x7f800001U), 0xffffU);  // not infinity, for all that its payload is lost
    CHECK_EQ(bf16(0xffc12345U), 0xffffU);
}

CASE("f16 rounds to nearest, ties to even") {
    CHECK_EQ(cast(1.0F, Element::f16), 0x3c00U);
    CHECK_EQ(cast(1.0F + 0x1p-11F, Element::f16), 0x3c00U);  // ties
    CHECK_EQ(cast(1.0F + 0x3p-11F, Element::f16), 0x3c02U);
    CHECK_EQ(cast(-2.0F, Element::f16), 0xc000U);
    CHECK_EQ(cast(65504.0F, Element::f16), 0x7bffU);
    CHECK_EQ(cast(65519.996F, Element::f16), 0x7bffU);
    CHECK_EQ(cast(65520.0F, Element::f16), 0x7c00U);
    CHECK_EQ(cast(-1e30F, Element::f16), 0xfc00U);
    CHECK_EQ(cast(0x1p-14F, Element::f16), 0x0400U);
    CHECK_EQ(cast(0x1p-24F, Element::f16), 0x0001U);
    CHECK_EQ(cast(0x1p-25F, Element::f16), 0x0000U);  // a tie with zero
    CHECK_EQ(cast(0x1.8p-24F, Element::f16), 0x0002U);
    CHECK_EQ(cast(0x1.000002p-25F, Element::f16), 0x0001U);
    CHECK_EQ(cast(0x1.ffcp-15F, Element::f16), 0x0400U);  // a subnormal that rounds up to a normal
    CHECK_EQ(cast(-0.0F, Element::f16), 0x8000U);
    CHECK_EQ(cast(std::bit_cast<float>(0xff923456U), Element::f16), 0xfe91U);  // quiet, with sign and payload
}

CASE("every f16 and bf16 becomes an f32 and comes back the same") {
    for (const Element type : {Element::f16, Element::bf16}) {
        for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
            const auto narrow = static_cast<std::uint16_t>(bits);
            const float wide = widened(narrow, type);
            if (std::isnan(wide)) {
                CHECK(std::isnan(widened(cast(wide, type), type)));
            } else {
                CHECK_EQ(cast(wide, type), narrow);
            }
        }
    }
    CHECK_EQ(widened(0x3c00U, Element::f16), 1.0F);
    CHECK_EQ(widened(0x0001U, Element::f16), 0x1p-24F);
    CHECK_EQ(widened(0x7bffU, Element::f16), 65504.0F);
    CHECK_EQ(widened(0xfc00U, Element::f16), -infinite);
    CHECK_EQ(widened(0x4049U, Element::bf16), 3.140625F);
}

CASE("f64 goes to 16 bits by way of f32") {
    // Just above a tie: right in one step would be up; f32 drops what tells, and the tie goes to even.
    const double value = 1.0 + 0x1p-11 + 0x1p-40;
    std::uint16_t bits = 0;
    fused_copy(&value, Element::f64, &bits, Element::f16, 1, 1.0, false);
    CHECK_EQ(bits, 0x3c00U);
}

CASE("the scale is applied in f32, or in f64 to f64") {
    const std::vector<float> values(40, 3.0F);
    std::vector<float> out(40);
    fused_copy(values.data(), Element::f32, out.data(), Element::f32, 40, 1.0 / 3, false);
    const float expected = 3.0F * static_cast<float>(1.0 / 3);
    const std::vector<double> wide(40, 3.0);
    std::vector<double> wide_out(40);
    fused_copy(wide.data(), Element::f64, wide_out.data(), Element::f64, 40, 0.1, false);
    for (std::size_t i = 0; i < 40; ++i) {
        CHECK_EQ(out[i], expected);
        CHECK_EQ(wide_out[i], 3.0 * 0.1);
    }
}

CASE("statistics of no value and of few") {
    const GradientStatistics none = of({});
    CHECK_EQ(none.sum_squares, 0.0);
    CHECK_EQ(none.absolute_maximum, 0.0);
    CHECK_EQ(none.non_finite, 0U);
    CHECK_EQ(none.first_non_finite, no_index);
    const GradientStatistics few = of({3.0F, -4.0F, 0.0F});
    CHECK_EQ(few.sum_squares, 25.0);
    CHECK_EQ(few.absolute_maximum, 4.0);
    CHECK_EQ(few.first_non_finite, no_index);
}

CASE("squares of f32 neither overflow nor vanish") {
    const GradientStatistics large = of(std::vector<float>(100, 3e38F));
    CHECK_EQ(large.sum_squares, 100 * (static_cast<double>(3e38F) * static_cast<double>(3e38F)));
    const GradientStatistics small = of(std::vector<float>(64, 0x1p-149F));
    CHECK_EQ(small.sum_squares, 0x1p-292);
}

CASE("the sum of squares keeps its error bound") {
    for (const std::size_t count : {1U, 31U, 1000U, 65537U}) {
        const std::vector<float> values = gradients::usual(count, 7);
        long double exact = 0;
        for (const float value : values) {
            exact += static_cast<long double>(value) * value;
        }
        const double got = of(values).sum_squares;
        const double bound = (static_cast<double>(count) / 16 + 5) * 0x1p-53;
        // Where long double is double, the reference is off by as much as one sum in a row can be.
        const double reference =
            static_cast<double>(count) * static_cast<double>(std::numeric_limits<long double>::epsilon());
        CHECK(std::abs(static_cast<double>(got - exact)) <= (bound + reference) * static_cast<double>(exact));
    }
}

CASE("each place that is not finite is counted, and the first is named") {
    for (std::size_t at = 0; at < 100; ++at) {
        for (const float bad : {not_a_number, infinite, -infinite}) {
            std::vector<float> values(100, 1.0F);
            values[at] = bad;
            const GradientStatistics one = of(values);
            CHECK_EQ(one.non_finite, 1U);
            CHECK_EQ(one.first_non_finite, at);
            CHECK(std::isnan(bad) ? std::isnan(one.sum_squares) : one.sum_squares == infinite);
            CHECK(std::isnan(bad) ? std::isnan(one.absolute_maximum) : one.absolute_maximum == infinite);
            values[99] = infinite;
            values[at] = bad;
            const GradientStatistics two = of(values);
            CHECK_EQ(two.non_finite, at == 99 ? 1U : 2U);
            CHECK_EQ(two.first_non_finite, at);
        }
    }
}

CASE("the first one is named though pages are read in turn") {
    // 5 rounds of 4 pages of 1024 values, and a rest.
    const std::size_t count = std::size_t{5} * 4 * 1024 + 777;
    for (const std::size_t first : {0U, 40U, 1023U, 1024U, 3100U, 4095U, 4096U, 20479U, 20480U, 21000U}) {
        std::vector<float> values(count, 1.0F);
        values[first] = not_a_number;
        std::uint64_t expected = 1;
        // Each of these comes later, but many of them are read before the first.
        for (std::size_t later = first + 1; later < count; later += 997) {
            values[later] = infinite;
            ++expected;
        }
        const GradientStatistics got = of(values);
        CHECK_EQ(got.first_non_finite, first);
        CHECK_EQ(got.non_finite, expected);
    }
}

CASE("statistics are those of the scaled values before the cast") {
    const std::vector<float> values(50, 40000.0F);
    std::vector<std::uint16_t> out(50);
    const GradientStatistics kept =
        fused_copy(values.data(), Element::f32, out.data(), Element::f16, 50, 2.0, false);
    CHECK_EQ(out[0], 0x7c00U);  // 80000 is infinite in f16, but it was not
    CHECK_EQ(kept.non_finite, 0U);
    CHECK_EQ(kept.absolute_maximum, 80000.0);
    std::vector<float> same(50);
    const GradientStatistics overflown =
        fused_copy(values.data(), Element::f32, same.data(), Element::f32, 50, 1e38, false);
    CHECK_EQ(overflown.non_finite, 50U);
    CHECK_EQ(overflown.first_non_finite, 0U);
}

CASE("merging the statistics of parts gives those of the whole") {
    std::vector<float> values = gradients::usual(300, 3);
    values[170] = infinite;
    values[290] = -infinite;
    GradientStatistics merged = of({values.begin(), values.begin() + 100});
    merged.merge(of({values.begin() + 100, values.begin() + 200}), 100);
    merged.merge(of({values.begin() + 200, values.end()}), 200);
    CHECK_EQ(merged.non_finite, 2U);
    CHECK_EQ(merged.first_non_finite, 170U);
    CHECK_EQ(merged.absolute_maximum, static_cast<double>(infinite));
    GradientStatistics with_nan = of({1.0F});
    with_nan.merge(of({not_a_number}), 1);
    with_nan.merge(of({2.0F}), 2);
    CHECK(std::isnan(with_nan.sum_squares));
    CHECK(std::isnan(with_nan.absolute_maximum));
    CHECK_EQ(with_nan.first_non_finite, 1U);
}

CASE("a copy without a cast keeps every bit") {
    for (const Element type : gradients::all_elements) {
        const gradients::Bytes source = gradients::any_bits(type, 1000, 11);
        gradients::Bytes target(source.size());
        fused_copy(source.data(), type, target.data(), type, 1000, 1.0, false);
        CHECK(source == target);
    }
}

CASE("in place") {
    for (const Element type : gradients::all_elements) {
        const gradients::Bytes source = gradients::finite(type, 1003, 12);
        gradients::Bytes apart(source.size());
        gradients::Bytes same = source;
        const GradientStatistics there =
            fused_copy(source.data(), type, apart.data(), type, 1003, 0.25, false);
        const GradientStatistics here = fused_copy(same.data(), type, same.data(), type, 1003, 0.25, false);
        CHECK(apart == same);
        CHECK_EQ(there.sum_squares, here.sum_squares);
    }
}

CASE("sums in 16 bits are added in f32 and rounded once") {
    // 256 + 1 + 1 in bf16, rounded in between, stays 256.
    const std::vector<std::uint16_t> large(70, cast(256.0F, Element::bf16));
    const std::vector<std::uint16_t> one(70, cast(1.0F, Element::bf16));
    const std::vector<const std::uint16_t*> inputs = {large.data(), one.data(), one.data()};
    std::vector<std::uint16_t> out(70);
    ddpdiag::sum_bf16(inputs.data(), 3, out.data(), 70);
    for (const std::uint16_t bits : out) {
        CHECK_EQ(widened(bits, Element::bf16), 258.0F);
    }
    const std::vector<std::uint16_t> half(70, cast(2048.0F, Element::f16));
    const std::vector<std::uint16_t> unit(70, cast(1.0F, Element::f16));
    out = unit;
    const std::vector<const std::uint16_t*> shorts = {half.data(), out.data(), unit.data()};
    ddpdiag::sum_f16(shorts.data(), 3, out.data(), 70);  // over an input of its own
    for (const std::uint16_t bits : out) {
        CHECK_EQ(widened(bits, Element::f16), 2050.0F);
    }
    ddpdiag::sum_bf16(nullptr, 0, out.data(), 70);
    CHECK_EQ(out[69], 0U);
}
