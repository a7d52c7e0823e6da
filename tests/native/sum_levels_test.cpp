// The kernels that sum the ranks' buckets, on every level of instructions.
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "check.hpp"
#include "core/kernels/fused_levels.hpp"
#include "gradients.hpp"

namespace {

using ddpdiag::Element;
using ddpdiag::KernelTable;
using ddpdiag::Level;
using gradients::Bytes;

constexpr std::size_t slack = 40;  // values around what is summed, which must stay as they are

struct Summed {
    std::vector<Bytes> buckets;
    std::size_t done;
};

// The values from `first` on, of all inputs, into the first `outputs` of them.
Summed summed(const KernelTable& kernels, Element element, std::vector<Bytes> inputs, std::size_t first,
              std::size_t count, std::size_t outputs, std::uint64_t divisor, bool stops) {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (Bytes& input : inputs) {
        from.push_back(input.data());
        to.push_back(input.data());
    }
    const std::size_t done = kernels.sum_into_all.at(static_cast<std::size_t>(element))({
        .inputs = from.data(),
        .input_count = from.size(),
        .outputs = to.data(),
        .output_count = outputs,
        .begin = first * ddpdiag::size_of(element),
        .count = count,
        .divisor = divisor,
        .stops = stops,
    });
    return {std::move(inputs), done};
}

std::vector<Bytes> some_inputs(Element element, std::size_t ranks, std::size_t count) {
    std::vector<Bytes> result;
    result.reserve(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        result.push_back(gradients::finite(element, count + slack, static_cast<std::uint32_t>(rank)));
    }
    return result;
}

template <typename Check>
void on_vector_levels(const Check& check) {
    for (const Level level : {Level::avx2, Level::avx512}) {
        if (const KernelTable* const kernels = ddpdiag::kernels(level)) {
            check(*kernels);
        }
    }
}

}  // namespace

CASE("all levels sum into all buckets with the same bits, and touch nothing else") {
    for (const Element element : gradients::all_elements) {
        for (const std::size_t count : {0UL, 1UL, 31UL, 32UL, 33UL, 1000UL}) {
            for (const std::size_t ranks : {1UL, 2UL, 3UL, 7UL}) {
                for (const std::uint64_t divisor :
                     {std::uint64_t{1}, std::uint64_t{ranks}, std::uint64_t{8}}) {
                    const auto inputs = some_inputs(element, ranks, count);
                    const std::size_t outputs = count % 2 == 0 ? ranks : 1;
                    const Summed expected =
                        summed(ddpdiag::scalar_kernels, element, inputs, 3, count, outputs, divisor, false);
                    CHECK_EQ(expected.done, count);
                    const std::size_t size = ddpdiag::size_of(element);
                    for (std::size_t rank = 0; rank < ranks; ++rank) {
                        const Bytes& now = expected.buckets[rank];
                        const std::size_t end = (3 + count) * size;
                        CHECK(std::memcmp(now.data(), inputs[rank].data(), 3 * size) == 0);
                        CHECK(std::memcmp(now.data() + end, inputs[rank].data() + end, now.size() - end) ==
                              0);
                        CHECK(rank < outputs || now == inputs[rank]);
                    }
                    on_vector_levels([&](const KernelTable& kernels) {
                        const Summed got =
                            summed(kernels, element, inputs, 3, count, outputs, divisor, false);
                        CHECK(got.buckets == expected.buckets);
                        CHECK_EQ(got.done, count);
                    });
                }
            }
        }
    }
}

CASE("all levels stop before a sum that is not finite, and leave its values as they are") {
    constexpr std::size_t count = 200;
    for (const std::size_t bad : {0UL, 31UL, 32UL, 100UL, 191UL, 192UL, 199UL}) {
        auto inputs = some_inputs(Element::f32, 3, count);
        const float infinity = std::numeric_limits<float>::infinity();
        std::memcpy(inputs[1].data() + bad * sizeof infinity, &infinity, sizeof infinity);
        const auto check = [&](const KernelTable& kernels) {
            const Summed got = summed(kernels, Element::f32, inputs, 0, count, 3, 3, true);
            CHECK(got.done <= bad && bad - got.done < 32);
            for (std::size_t rank = 0; rank < 3; ++rank) {
                const std::size_t at = got.done * sizeof(float);
                CHECK(std::memcmp(got.buckets[rank].data() + at, inputs[rank].data() + at,
                                  inputs[rank].size() - at) == 0);
            }
            CHECK_EQ(summed(kernels, Element::f32, inputs, 0, count, 3, 3, false).done, count);
        };
        check(ddpdiag::scalar_kernels);
        on_vector_levels(check);
    }
}
