// The units of a bucket, which the ranks sum one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/shared/board.hpp"
#include "core/shared/bucket.hpp"
#include "core/shared/sum.hpp"

namespace ddpdiag {

// What a rank sums at a time. It decides how evenly the work is spread, and how long the others may have to wait for the
// last unit.
inline constexpr std::uint64_t unit_bytes = std::uint64_t{64} << 10U;
// Of large buckets, more: fewer claims, and longer stretches of memory. Of small ones, less: more ranks can help.
[[nodiscard]] constexpr std::uint64_t unit_of(std::uint64_t bucket_bytes) noexcept {
    if (bucket_bytes < 4 * unit_bytes) {
        return unit_bytes / 4;
    }
    return bucket_bytes < 128 * unit_bytes ? unit_bytes : 4 * unit_bytes;
}
[[nodiscard]] constexpr std::uint64_t units_of(const SharedBucket& bucket) noexcept {
    const std::uint64_t unit = unit_of(bucket.sum.bytes);
    return (bucket.sum.bytes + unit - 1) / unit;
}

// Whether all units of an operation, whose bucket `ours` is, are summed.
[[nodiscard]] bool is_done(const Board& board, std::uint64_t number, const SharedBucket& ours) noexcept;

// Claims units until there are none, and sums them as `sum` says from `buckets` into those that `targets` names for a
// unit. Throws SharedExchangeError: a rank has failed before all units were done.
using Targets = std::function<std::span<std::byte* const>(std::uint64_t unit)>;
void sum_units(const Board& board, std::uint64_t number, const SharedBucket& ours, const SharedSum& sum,
               const std::vector<std::byte*>& buckets, const Targets& targets);
// Into all of them; empty: nothing is left to do.
void sum_units(const Board& board, std::uint64_t number, const SharedBucket& ours,
               const std::vector<std::byte*>& buckets);

}  // namespace ddpdiag
