#include "core/shared/units.hpp"

#include <algorithm>
#include <array>

#include "core/shared/at_buckets.hpp"
#include "core/shared/errors.hpp"
#include "core/shared/progress.hpp"

namespace ddpdiag {

bool is_done(const Board& board, std::uint64_t number, const SharedBucket& ours) noexcept {
    return all_done(board.progress(number), number, units_of(ours));
}

void sum_units(const Board& board, std::uint64_t number, const SharedBucket& ours,
               const std::vector<std::byte*>& buckets) {
    if (!buckets.empty()) {
        sum_units(board, number, ours, ours.sum, buckets,
                  [&](std::uint64_t /*unit*/) { return std::span(buckets); });
    }
}

void sum_units(const Board& board, std::uint64_t number, const SharedBucket& ours, const SharedSum& sum,
               const std::vector<std::byte*>& buckets, const Targets& targets) {
    Progress& progress = board.progress(number);
    const std::uint64_t units = units_of(ours);
    const std::uint64_t bytes = unit_of(ours.sum.bytes);
    const std::uint64_t watched = board.watched_in(number);
    std::array<GradientStatistics, most_shared_ranks> room{};
    const std::span found(room.data(), board.ranks());
    const AtBuckets here(board, number);
    // All may have done their part before one failed in a later bucket.
    if (here.one_has_failed() && !is_done(board, number, ours)) {
        throw failed_error(board, board.failed());
    }
    while (const auto unit = claim_unit(progress, number, units)) {
        const std::uint64_t begin = *unit * bytes;
        std::ranges::fill(found, GradientStatistics{});
        sum.run(buckets, targets(*unit), begin, std::min(begin + bytes, ours.sum.bytes), found, watched);
        if (here.one_has_failed()) {
            // It may have waited for us in vain: what was summed may be anything.
            throw failed_error(board, board.failed());
        }
        for (std::size_t rank = 0; rank < board.ranks(); ++rank) {
            if (found[rank].non_finite != 0 || found[rank].sum_squares != 0) {
                add(board.announcement(rank, number), found[rank]);
            }
        }
        if (unit_done(progress, number, units)) {
            board.ring_all();
        }
    }
}

}  // namespace ddpdiag
