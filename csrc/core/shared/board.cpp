#include "core/shared/board.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

namespace ddpdiag {
namespace {

using std::chrono::milliseconds;

// How long to wait for those who are at our buckets. A unit takes less than a millisecond, on a core.
constexpr milliseconds letting_go{2000};

std::size_t own_rank_among(const std::vector<std::optional<SharedPeer>>& peers) {
    const auto is_own = [](const auto& peer) { return !peer.has_value(); };
    if (peers.size() > most_shared_ranks || std::ranges::count_if(peers, is_own) != 1) {
        throw std::invalid_argument("up to " + std::to_string(most_shared_ranks) +
                                    " ranks can share memory, one of which is our own.");
    }
    return static_cast<std::size_t>(std::ranges::find_if(peers, is_own) - peers.begin());
}

template <typename Condition>
Ranks ranks_where(std::size_t ranks, const Condition& condition) {
    Ranks result;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (condition(rank)) {
            result.push_back(rank);
        }
    }
    return result;
}

}  // namespace

Board::Board(SharedMember own, std::vector<std::optional<SharedPeer>> peers, std::vector<std::string> names)
    : own_(std::move(own)),
      peers_(std::move(peers)),
      names_(std::move(names)),
      rank_(own_rank_among(peers_)) {
    if (names_.size() != peers_.size()) {
        throw std::invalid_argument("each rank needs a name.");
    }
}

std::string Board::listed(const Ranks& ranks) const {
    std::string text;
    for (const std::size_t rank : ranks) {
        text += (text.empty() ? "" : ", ") + names_[rank];
    }
    return text;
}

void Board::ring_all() const noexcept {
    for (const auto& peer : peers_) {
        if (peer) {
            peer->ring();
        }
    }
}

void Board::announce(std::uint64_t number, const Announced& bucket) const noexcept {
    write(announcement(rank_, number), number, bucket);
    // The others sleep until the last rank has announced; of two that come at once, at least one sees both.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (all_have_announced(number)) {
        ring_all();
    }
}

bool Board::all_have_announced(std::uint64_t number) const noexcept {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (!has_announced(rank, number)) {
            return false;
        }
    }
    return true;
}

Ranks Board::not_announced_by(std::uint64_t number) const {
    return ranks_where(ranks(), [&](std::size_t rank) { return !has_announced(rank, number); });
}

std::uint64_t Board::watched_in(std::uint64_t number) const noexcept {
    std::uint64_t result = 0;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        const auto& theirs = announcement(rank, number);
        result |= std::uint64_t{theirs.watched.load(std::memory_order_relaxed) != 0} << rank;
    }
    return result;
}

void Board::hand_out(std::uint64_t number) const {
    own().handed_out.store(number + 1);
    // As in announce(): the others sleep until the last rank has handed out.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (not_handed_out_by(number).empty()) {
        ring_all();
    }
}

Ranks Board::not_handed_out_by(std::uint64_t number) const {
    return ranks_where(ranks(),
                       [&](std::size_t rank) { return control(rank).handed_out.load() < number + 1; });
}

Ranks Board::busy_with(std::uint64_t number) const {
    return ranks_where(ranks(), [&](std::size_t rank) { return control(rank).busy.load() == number + 1; });
}

Ranks Board::ended() const {
    Ranks result;
    Ranks followed;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (rank != rank_ && !runs(rank)) {
            (standing(rank) == Standing::failed ? followed : result).push_back(rank);
        }
    }
    return result.empty() ? followed : result;
}

Ranks Board::failed() const {
    return ranks_where(ranks(), [&](std::size_t rank) { return standing(rank) == Standing::failed; });
}

bool Board::one_has_failed() const noexcept {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (standing(rank) == Standing::failed) {
            return true;
        }
    }
    return false;
}

void Board::leave() const noexcept {
    auto here = Standing::here;
    own().standing.compare_exchange_strong(here, Standing::left);
    ring_all();
}

// Two words are written and read crosswise here: a rank that fails stores its standing and then loads the others' `busy`;
// one that wants to sum stores its `busy` and then loads all standings (AtBuckets). All four are sequentially consistent.
// So in their one order either the standing comes before its load, and that rank touches nothing; or `busy` comes before
// its load, and we wait for that rank. With weaker ones, neither might see the other.
void Board::fail(SharedFailure failure) const noexcept {
    failure.origin = failure.origin < ranks() ? failure.origin : rank_;
    show(own(), failure);
    own().standing.store(Standing::failed);
    ring_all();
}

// Who is at a bucket for that long has been put aside. It will not call its unit done, but may still write it.
bool Board::others_let_go() const noexcept {
    const auto until = std::chrono::steady_clock::now() + letting_go;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        while (rank != rank_ && control(rank).busy.load() != 0 && runs(rank)) {
            if (std::chrono::steady_clock::now() >= until) {
                return false;
            }
            std::this_thread::sleep_for(milliseconds{1});
        }
    }
    return true;
}

}  // namespace ddpdiag
