#include "core/shared/mapped_buckets.hpp"

#include <chrono>
#include <thread>

#include "core/shared/errors.hpp"
#include "core/shared/units.hpp"
#include "platform/platform.hpp"

namespace ddpdiag {
namespace {

using std::chrono::milliseconds;

// How long a process that ends is taken to keep its number after its memory is gone.
constexpr milliseconds ending{1000};

// Whether a rank whose memory cannot be opened any more has ended, or is about to.
bool ends(const Board& board, std::size_t rank) {
    const auto until = std::chrono::steady_clock::now() + ending;
    while (board.runs(rank)) {
        if (std::chrono::steady_clock::now() >= until) {
            return false;
        }
        std::this_thread::sleep_for(milliseconds{1});
    }
    return true;
}

}  // namespace

MappedBuckets::MappedBuckets(const Board& board, bool hands_out) : board_(&board), hands_out_(hands_out) {
    for (std::size_t rank = 0; rank < board.ranks(); ++rank) {
        peers_.push_back(rank == board.own_rank() ? std::nullopt
                                                  : std::optional<PeerPlaces>(board.control(rank)));
    }
}

// All are compared before any is opened: a rank that has found a difference may have let go of its bucket.
std::vector<std::byte*> MappedBuckets::of(std::uint64_t number, const SharedBucket& ours) {
    std::vector<Announced> all;
    for (std::size_t rank = 0; rank < board_->ranks(); ++rank) {
        const auto theirs = read(board_->announcement(rank, number), number);
        if (!theirs) {
            return {};
        }
        require_same(*board_, ours.key(), board_->name(rank), theirs->key(), std::uint64_t{1} << rank);
        all.push_back(*theirs);
    }
    std::vector<std::byte*> result;
    for (std::size_t rank = 0; rank < board_->ranks(); ++rank) {
        std::byte* const bucket = bucket_of(rank, all[rank], number, ours);
        if (bucket == nullptr) {
            return {};
        }
        result.push_back(bucket);
    }
    return result;
}

// nullptr: the operation is done meanwhile.
std::byte* MappedBuckets::bucket_of(std::size_t rank, const Announced& theirs, std::uint64_t number,
                                    const SharedBucket& ours) {
    auto& mapped = peers_[rank];
    if (!mapped) {
        return ours.data();
    }
    try {
        return mapped->bucket(theirs);
    } catch (const platform::SystemError& error) {
        if (!hands_out_ && is_done(*board_, number, ours)) {
            return nullptr;  // its memory may be given back by now
        }
        if (board_->one_has_failed()) {
            throw failed_error(*board_, board_->failed());
        }
        if (ends(*board_, rank)) {
            throw ended_error(*board_, board_->ended());
        }
        throw SharedExchangeError("cannot reach the bucket of " + board_->name(rank) + ": " + error.what());
    }
}

}  // namespace ddpdiag
