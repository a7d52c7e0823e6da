// Sums buckets of several ranks that lie in one address space, and writes the sum into all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/kernels/fused_copy.hpp"

namespace ddpdiag {

struct SharedSum {
    Element element = Element::f32;
    std::uint64_t bytes = 0;  // of the whole bucket; a multiple of the element's size
    bool average = true;      // each rank's values are divided by the number of ranks first
    std::size_t hosts = 1;    // the buckets are those of one of them: so many times as many ranks

    // The values of bytes [begin, end), both multiples of the element's size. `buckets`: where each rank's begins, of
    // up to most_shared_ranks; they must not overlap. f32 and f64 get the bits of a division by the number of ranks and
    // Gloo's all-reduce. 16-bit values are added in f32 in the same order and rounded once. May run at once on disjoint
    // ranges.
    void run(std::span<std::byte* const> buckets, std::uint64_t begin, std::uint64_t end) const noexcept {
        run(buckets, buckets, begin, end, {});
    }
    // The same, written into `targets` only, each of which is a bucket. `found`: by rank, what of its values is not
    // finite is added to it; may be empty. A sum that is not finite shows it: this costs a look at the sums and nothing
    // more. `watched`: a bit per rank; of these, all statistics are taken, of values that are then still in the cache.
    void run(std::span<std::byte* const> buckets, std::span<std::byte* const> targets, std::uint64_t begin,
             std::uint64_t end, std::span<GradientStatistics> found,
             std::uint64_t watched = 0) const noexcept;
};

}  // namespace ddpdiag
