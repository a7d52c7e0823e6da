#include "core/shared/sum.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/kernels/half.hpp"
#include "core/shared/ring_order.hpp"

namespace {

using ddpdiag::Element;
using ddpdiag::ring_chunk_bytes;
using ddpdiag::SharedSum;

// Values of very different size: the order of the additions shows.
template <typename Value>
std::vector<std::vector<Value>> some_values(std::size_t ranks, std::size_t count) {
    std::mt19937_64 random(ranks * 1000 + count);
    std::normal_distribution<double> normal;
    std::vector<std::vector<Value>> result(ranks, std::vector<Value>(count));
    for (auto& values : result) {
        for (Value& value : values) {
            value = static_cast<Value>(normal(random) * std::exp2(static_cast<double>(random() % 12)));
        }
    }
    return result;
}

template <typename Value>
std::vector<std::byte*> buckets_of(std::vector<std::vector<Value>>& values) {
    std::vector<std::byte*> result;
    result.reserve(values.size());
    for (auto& each : values) {
        result.push_back(reinterpret_cast<std::byte*>(each.data()));
    }
    return result;
}

// Value by value, as Gloo's documentation of its ring says it.
template <typename Value>
std::vector<Value> expected(const std::vector<std::vector<Value>>& values, bool average) {
    const std::size_t ranks = values.size();
    const std::size_t count = values[0].size();
    const std::uint64_t chunk = ring_chunk_bytes(count * sizeof(Value), sizeof(Value), ranks) / sizeof(Value);
    std::vector<Value> result(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t c = i / chunk;
        for (std::size_t step = 1; step <= ranks; ++step) {
            Value value = values[(c + ranks - step) % ranks][i];
            if (average) {
                value /= static_cast<Value>(ranks);
            }
            result[i] = step == 1 ? value : result[i] + value;
        }
    }
    return result;
}

template <typename Value>
bool same_bits(const std::vector<Value>& a, const std::vector<Value>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Value)) == 0;
}

template <typename Value>
void check_all_sizes(Element element) {
    for (std::size_t ranks = 1; ranks <= 7; ++ranks) {
        for (const std::size_t count : {1UL, 2UL, 13UL, 1023UL, 1025UL, 70'001UL, 600'000UL}) {
            for (const bool average : {true, false}) {
                auto values = some_values<Value>(ranks, count);
                const auto wanted = expected(values, average);
                const SharedSum sum{.element = element, .bytes = count * sizeof(Value), .average = average};
                // In parts that do not end where the ring's chunks do.
                const std::uint64_t part = (count / 3 + 1) * sizeof(Value);
                for (std::uint64_t begin = 0; begin < sum.bytes; begin += part) {
                    sum.run(buckets_of(values), begin, std::min(begin + part, sum.bytes));
                }
                for (const auto& each : values) {
                    CHECK(same_bits(each, wanted));
                }
            }
        }
    }
}

}  // namespace

CASE("the ring's chunks cover a buffer, and are whole values") {
    for (std::uint64_t ranks = 1; ranks <= 64; ++ranks) {
        for (const std::uint64_t size : {4ULL, 8ULL}) {
            for (const std::uint64_t count :
                 {1ULL, 2ULL, 63ULL, 1000ULL, 262'143ULL, 262'145ULL, 7'000'000ULL}) {
                const std::uint64_t chunk = ring_chunk_bytes(count * size, size, ranks);
                CHECK(chunk > 0 && chunk % size == 0 && chunk * ranks >= count * size);
            }
        }
    }
}

// Read off Gloo itself, with 3 ranks: 10 values in chunks of 4, 4 and 2; 7 MB in chunks of 2.33 MB.
CASE("the ring's chunks are those of Gloo") {
    CHECK_EQ(ring_chunk_bytes(40, 4, 3), 16U);
    CHECK_EQ(ring_chunk_bytes(4, 4, 2), 8U);
    CHECK_EQ(ring_chunk_bytes(7'000'000, 4, 3), 3U * 777'780U);
}

CASE("sums of f32 have the bits of the ring, at every number of ranks") {
    check_all_sizes<float>(Element::f32);
}

CASE("sums of f64 have the bits of the ring, at every number of ranks") {
    check_all_sizes<double>(Element::f64);
}

CASE("16-bit values are summed in f32 and rounded once") {
    for (const Element element : {Element::f16, Element::bf16}) {
        const auto round = element == Element::f16 ? ddpdiag::f16_of_f32 : ddpdiag::bf16_of_f32;
        const auto widen = element == Element::f16 ? ddpdiag::f32_of_f16 : ddpdiag::f32_of_bf16;
        auto wide = some_values<float>(3, 5000);
        std::vector<std::vector<std::uint16_t>> values(3, std::vector<std::uint16_t>(5000));
        for (std::size_t rank = 0; rank < 3; ++rank) {
            for (std::size_t i = 0; i < 5000; ++i) {
                values[rank][i] = round(wide[rank][i]);
                wide[rank][i] = widen(values[rank][i]);
            }
        }
        const SharedSum sum{.element = element, .bytes = 10'000, .average = true};
        sum.run(buckets_of(values), 0, sum.bytes);
        for (std::size_t i = 0; i < 5000; ++i) {
            const double exact = (double{wide[0][i]} + wide[1][i] + wide[2][i]) / 3;
            const double error = std::abs(double{widen(values[0][i])} - exact);
            const double largest = std::abs(wide[0][i]) + std::abs(wide[1][i]) + std::abs(wide[2][i]);
            CHECK(error <= std::abs(exact) * (element == Element::f16 ? 0x1p-11 : 0x1p-8) +
                               largest * 0x1p-22 + 0x1p-25);
            CHECK_EQ(values[0][i], values[1][i]);
            CHECK_EQ(values[0][i], values[2][i]);
        }
    }
}

CASE("infinities and NaN come through") {
    std::vector<std::vector<float>> values = {{1, std::numeric_limits<float>::infinity(), 2},
                                              {std::nanf(""), 1, -2}};
    const SharedSum sum{.element = Element::f32, .bytes = 12, .average = true};
    sum.run(buckets_of(values), 0, 12);
    CHECK(std::isnan(values[0][0]) && std::isnan(values[1][0]));
    CHECK(std::isinf(values[0][1]) && std::isinf(values[1][1]));
    CHECK_EQ(values[0][2], 0.0F);
}

CASE("values that are not finite are found with who brings them, and sums that overflow blame nobody") {
    constexpr std::size_t count = 5000;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float large = std::numeric_limits<float>::max();
    std::vector<std::vector<float>> values(3, std::vector<float>(count, 1));
    values[0][7] = large;
    values[1][7] = large;
    values[1][2000] = infinity;
    values[1][4999] = -infinity;
    values[2][2000] = std::nanf("");
    const SharedSum sum{.element = Element::f32, .bytes = count * sizeof(float), .average = false};
    std::array<ddpdiag::GradientStatistics, 3> found{};
    const auto buckets = buckets_of(values);
    // In two parts, the later one first.
    sum.run(buckets, buckets, 4096, sum.bytes, found);
    sum.run(buckets, buckets, 0, 4096, found);
    CHECK(std::isinf(values[0][7]));
    CHECK_EQ(found[0].non_finite, 0U);
    CHECK_EQ(found[0].first_non_finite, ddpdiag::no_index);
    CHECK_EQ(found[1].non_finite, 2U);
    CHECK_EQ(found[1].first_non_finite, 2000U);
    CHECK_EQ(found[2].non_finite, 1U);
    CHECK_EQ(found[2].first_non_finite, 2000U);
}

CASE("16-bit values that are not finite are found, too") {
    for (const Element element : {Element::f16, Element::bf16}) {
        const auto round = element == Element::f16 ? ddpdiag::f16_of_f32 : ddpdiag::bf16_of_f32;
        std::vector<std::vector<std::uint16_t>> values(2, std::vector<std::uint16_t>(10, round(1)));
        values[1][3] = round(std::numeric_limits<float>::infinity());
        const SharedSum sum{.element = element, .bytes = 20, .average = true};
        std::array<ddpdiag::GradientStatistics, 2> found{};
        const auto buckets = buckets_of(values);
        sum.run(buckets, buckets, 0, 20, found);
        CHECK_EQ(found[0].non_finite, 0U);
        CHECK_EQ(found[1].non_finite, 1U);
        CHECK_EQ(found[1].first_non_finite, 3U);
    }
}

CASE("all statistics are taken of those who are watched, before they are summed") {
    constexpr std::size_t count = 70'000;
    std::vector<std::vector<float>> values(3, std::vector<float>(count));
    for (std::size_t rank = 0; rank < 3; ++rank) {
        for (std::size_t i = 0; i < count; ++i) {
            values[rank][i] = static_cast<float>((i * (rank + 7)) % 1001) - 400.0F;
        }
    }
    values[0][5] = values[2][69'000] = values[2][3] = std::numeric_limits<float>::infinity();
    std::vector<ddpdiag::GradientStatistics> wanted;
    wanted.reserve(values.size());
    for (const auto& own : values) {
        wanted.push_back(ddpdiag::statistics(own.data(), Element::f32, count));
    }
    const SharedSum sum{.element = Element::f32, .bytes = count * sizeof(float), .average = true};
    std::array<ddpdiag::GradientStatistics, 3> found{};
    const auto buckets = buckets_of(values);
    // Of ranks 1 and 2; in two parts, the later one first.
    sum.run(buckets, buckets, 120'000, sum.bytes, found, 0b110);
    sum.run(buckets, buckets, 0, 120'000, found, 0b110);
    CHECK_EQ(found[0].sum_squares, 0.0);
    CHECK_EQ(found[0].absolute_maximum, 0.0);
    CHECK(std::abs(found[1].sum_squares - wanted[1].sum_squares) <= 1e-13 * wanted[1].sum_squares);
    CHECK_EQ(found[1].absolute_maximum, wanted[1].absolute_maximum);
    CHECK(std::isinf(found[2].sum_squares) && std::isinf(found[2].absolute_maximum));
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CHECK_EQ(found[rank].non_finite, wanted[rank].non_finite);
        CHECK_EQ(found[rank].first_non_finite, wanted[rank].first_non_finite);
    }
}
