#include "core/shared/sum.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/kernels/fused_levels.hpp"
#include "core/kernels/half.hpp"
#include "core/shared/layout.hpp"
#include "core/shared/ring_order.hpp"

namespace ddpdiag {
namespace {

// Looked at after a sum that is not finite: so many values, at least what a kernel does at once.
constexpr std::size_t suspects = 32;
// Of a watched bucket: so many bytes are looked at and then summed, which leaves those of all ranks in the cache.
constexpr std::uint64_t watched_bytes = std::uint64_t{8} << 10U;

constexpr bool has(std::uint64_t bits, std::size_t rank) noexcept {
    return (bits >> rank & 1U) != 0;
}

double value_at(const std::byte* from, Element element) noexcept {
    if (element == Element::f64) {
        double value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    if (element == Element::f32) {
        float value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof bits);
    return element == Element::f16 ? f32_of_f16(bits) : f32_of_bf16(bits);
}

// Whose values made a sum that is not finite: no rank's, where it has overflowed. Those who are watched are known.
void blame(Element element, std::span<std::byte* const> buckets, std::uint64_t at, std::size_t count,
           std::span<GradientStatistics> found, std::uint64_t watched) noexcept {
    for (std::size_t rank = 0; rank < buckets.size(); ++rank) {
        for (std::size_t i = 0; i < count && !has(watched, rank); ++i) {
            if (!std::isfinite(value_at(buckets[rank] + at + i * size_of(element), element))) {
                ++found[rank].non_finite;
                found[rank].first_non_finite =
                    std::min(found[rank].first_non_finite, at / size_of(element) + i);
            }
        }
    }
}

void watch(Element element, std::span<std::byte* const> buckets, std::uint64_t begin, std::size_t count,
           std::span<GradientStatistics> found, std::uint64_t watched) noexcept {
    for (std::size_t rank = 0; rank < buckets.size(); ++rank) {
        if (has(watched, rank)) {
            GradientStatistics part;
            part.merge(statistics(buckets[rank] + begin, element, count), begin / size_of(element));
            // What is there already may be of later values.
            const std::uint64_t first = std::min(found[rank].first_non_finite, part.first_non_finite);
            found[rank].merge(part, 0);
            found[rank].first_non_finite = first;
        }
    }
}

// Values of the same chunk of the ring, up to the end or to a sum that is not finite, whose makers are then looked for.
void sum_in_chunk(Element element, KernelTable::Parts parts, std::span<std::byte* const> buckets,
                  std::span<GradientStatistics> found, std::uint64_t watched) noexcept {
    const auto kernel = best_kernels().sum_into_all[static_cast<std::size_t>(element)];
    const auto go_on = [&](std::size_t done) {
        parts.begin += done * size_of(element);
        parts.count -= done;
    };
    parts.stops = !found.empty();
    go_on(kernel(parts));
    while (parts.count > 0) {
        const std::size_t count = std::min(suspects, parts.count);
        blame(element, buckets, parts.begin, count, found, watched);
        KernelTable::Parts rest = parts;
        rest.count = count;
        rest.stops = false;
        go_on(kernel(rest));
        go_on(kernel(parts));
    }
}

}  // namespace

void SharedSum::run(std::span<std::byte* const> buckets, std::span<std::byte* const> targets,
                    std::uint64_t begin, std::uint64_t end, std::span<GradientStatistics> found,
                    std::uint64_t watched) const noexcept {
    const std::size_t ranks = buckets.size();
    const std::uint64_t chunk_bytes = ring_chunk_bytes(bytes, size_of(element), ranks);
    std::array<const std::byte*, most_shared_ranks> inputs{};
    while (begin < end) {
        const std::uint64_t chunk = begin / chunk_bytes;
        const std::uint64_t chunk_end =
            std::min({end, (chunk + 1) * chunk_bytes, watched != 0 ? begin + watched_bytes : end});
        const std::size_t count = static_cast<std::size_t>(chunk_end - begin) / size_of(element);
        watch(element, buckets, begin, count, found, watched);
        for (std::size_t position = 0; position < ranks; ++position) {
            inputs[position] = buckets[ring_addend(static_cast<std::size_t>(chunk), position, ranks)];
        }
        sum_in_chunk(element,
                     {.inputs = inputs.data(),
                      .input_count = ranks,
                      .outputs = targets.data(),
                      .output_count = targets.size(),
                      .begin = static_cast<std::size_t>(begin),
                      .count = count,
                      .divisor = average ? ranks * hosts : 1,
                      .stops = false},
                     buckets, found, watched);
        begin = chunk_end;
    }
}

}  // namespace ddpdiag
