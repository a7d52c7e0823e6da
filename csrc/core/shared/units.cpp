// The units of a bucket, which the ranks sum one by one.
#include <algorithm>
#include <array>
#include <atomic>
#include <span>

#include "core/shared/at_buckets.hpp"
#include "core/shared/exchange.hpp"
#include "core/shared/progress.hpp"

namespace ddpdiag {

std::uint64_t SharedExchange::units_of(const SharedBucket& bucket) noexcept {
    const std::uint64_t unit = unit_of(bucket.sum.bytes);
    return (bucket.sum.bytes + unit - 1) / unit;
}

bool SharedExchange::is_done(std::uint64_t number, const SharedBucket& ours) const noexcept {
    return all_done(control(0).progress[number % shared_operations], number, units_of(ours));
}

void SharedExchange::sum_units(std::uint64_t number, const SharedBucket& ours,
                               const std::vector<std::byte*>& buckets) {
    if (!buckets.empty()) {
        sum_units(number, ours, ours.sum, buckets,
                  [&](std::uint64_t /*unit*/) { return std::span(buckets); });
    }
}

void SharedExchange::sum_units(std::uint64_t number, const SharedBucket& ours, const SharedSum& sum,
                               const std::vector<std::byte*>& buckets, const Targets& targets) {
    Progress& progress = control(0).progress[number % shared_operations];
    const std::uint64_t units = units_of(ours);
    const std::uint64_t bytes = unit_of(ours.sum.bytes);
    const std::uint64_t watched = watched_in(number);
    std::array<GradientStatistics, most_shared_ranks> room{};
    const std::span found(room.data(), ranks());
    const AtBuckets here(*this, number);
    // All may have done their part before one failed in a later bucket.
    if (here.one_has_failed() && !is_done(number, ours)) {
        throw failed_error(failed());
    }
    while (const auto unit = claim_unit(progress, number, units)) {
        const std::uint64_t begin = *unit * bytes;
        std::ranges::fill(found, GradientStatistics{});
        sum.run(buckets, targets(*unit), begin, std::min(begin + bytes, ours.sum.bytes), found, watched);
        if (here.one_has_failed()) {
            // It may have waited for us in vain: what was summed may be anything.
            throw failed_error(failed());
        }
        for (std::size_t rank = 0; rank < ranks(); ++rank) {
            if (found[rank].non_finite != 0 || found[rank].sum_squares != 0) {
                add(control(rank).announcements[number % shared_operations], found[rank]);
            }
        }
        if (unit_done(progress, number, units)) {
            ring_all();
        }
    }
}

// A bit per rank.
std::uint64_t SharedExchange::watched_in(std::uint64_t number) const noexcept {
    std::uint64_t result = 0;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        const auto& theirs = control(rank).announcements[number % shared_operations];
        result |= std::uint64_t{theirs.watched.load(std::memory_order_relaxed) != 0} << rank;
    }
    return result;
}

}  // namespace ddpdiag
