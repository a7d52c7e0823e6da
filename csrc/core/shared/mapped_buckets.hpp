// Where the buckets of all ranks of this host are in our address space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/shared/announcement.hpp"
#include "core/shared/board.hpp"
#include "core/shared/bucket.hpp"
#include "core/shared/places.hpp"

namespace ddpdiag {

// For one thread at a time.
class MappedBuckets {
public:
    // `hands_out`: with several hosts, no rank gets its bucket back before all have handed out their parts.
    MappedBuckets(const Board& board, bool hands_out);

    // By rank, of an operation that all have announced. Empty: it is done meanwhile. Throws SharedExchangeError: the ranks
    // do not bring the same, or one of them is gone.
    [[nodiscard]] std::vector<std::byte*> of(std::uint64_t number, const SharedBucket& ours);

private:
    [[nodiscard]] std::byte* bucket_of(std::size_t rank, const Announced& theirs, std::uint64_t number,
                                       const SharedBucket& ours);

    const Board* board_;
    bool hands_out_;
    std::vector<std::optional<PeerPlaces>> peers_;  // by rank
};

}  // namespace ddpdiag
