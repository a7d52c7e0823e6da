#include "core/shared/errors.hpp"

#include "core/shared/announcement.hpp"

namespace ddpdiag {
namespace {

constexpr const char* rank_has_ended = " has ended in the middle of training.";
constexpr const char* rank_has_failed =
    " does not take part in any further bucket: it has failed, or its module or recorder is gone.";

// A rank that is to blame also learns who has waited for it; the others only who is to blame.
std::string in_words(const Board& board, const SharedFailure& failure) {
    Ranks ranks;
    for (std::size_t rank = 0; rank < board.ranks(); ++rank) {
        if ((failure.blamed >> rank & 1U) != 0) {
            ranks.push_back(rank);
        }
    }
    const bool is_ours = (failure.blamed >> board.own_rank() & 1U) != 0;
    const std::string known = failure.origin < board.ranks() ? board.name(failure.origin) : "another rank";
    const std::string origin = is_ours ? known : "another rank";
    const std::string blamed = board.listed(ranks);
    switch (ranks.empty() ? FailureCause::own : failure.cause) {
        case FailureCause::late:
            return blamed + " ran but did not take part: " + origin + " has waited " +
                   std::to_string(failure.seconds) + " s and given up.";
        case FailureCause::given_up:
            return blamed + " did not take part: " + origin + " was made to give up while it waited.";
        case FailureCause::ended:
            return blamed + rank_has_ended;
        case FailureCause::differs:
            return "the ranks do not bring the same bucket: " + blamed + " has another one than " + known +
                   ".";
        case FailureCause::own:
            break;
    }
    return known + rank_has_failed;
}

}  // namespace

SharedExchangeError ended_error(const Board& board, const Ranks& ranks) {
    if (board.standing(ranks.front()) == Standing::failed) {
        return failed_error(board, ranks);  // it may have ended for somebody else's reason
    }
    return SharedExchangeError(board.listed(ranks) + rank_has_ended,
                               {.cause = FailureCause::ended, .blamed = bits_of(ranks)});
}

// What the first of them says, unless another one knows of a rank that has ended.
SharedExchangeError failed_error(const Board& board, const Ranks& ranks) {
    SharedFailure failure;
    for (const std::size_t rank : ranks) {
        const SharedFailure theirs = board.failure_of(rank);
        if (rank == ranks.front() ||
            (failure.cause != FailureCause::ended && theirs.cause == FailureCause::ended)) {
            failure = theirs;
        }
    }
    return SharedExchangeError(in_words(board, failure), failure, follower_error_delay);
}

SharedExchangeError left_error(const Board& board, const Ranks& ranks) {
    return SharedExchangeError(board.listed(ranks) + rank_has_failed,
                               {.cause = FailureCause::own, .origin = ranks.front()}, follower_error_delay);
}

void require_same(const Board& board, const BucketKey& ours, const std::string& name, const BucketKey& theirs,
                  std::uint64_t blamed) {
    if (theirs != ours) {
        throw SharedExchangeError("the ranks do not bring the same bucket: " + board.name(board.own_rank()) +
                                      " has " + described(ours) + "; " + name + " has " + described(theirs) +
                                      ".",
                                  {.cause = FailureCause::differs, .blamed = blamed});
    }
}

}  // namespace ddpdiag
