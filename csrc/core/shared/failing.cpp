// How a rank of a SharedExchange fails, and what the others see of it.
#include <atomic>
#include <mutex>
#include <thread>

#include "core/shared/exchange.hpp"
#include "core/shared/wait.hpp"

namespace ddpdiag {
namespace {

using std::chrono::milliseconds;

// How long to wait for those who are at our buckets. A unit takes less than a millisecond, on a core.
constexpr milliseconds letting_go{2000};

}  // namespace

// Those that are to blame: not one that had failed before it ended, as we are about to, if there is another.
SharedExchange::Ranks SharedExchange::ended() const {
    Ranks result;
    Ranks followed;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        const auto& peer = peers_[rank];
        if (peer && !peer->runs()) {
            const bool failed = control(rank).standing.load() == Standing::failed;
            (failed ? followed : result).push_back(rank);
        }
    }
    return result.empty() ? followed : result;
}

SharedExchange::Ranks SharedExchange::failed() const {
    Ranks result;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (control(rank).standing.load() == Standing::failed) {
            result.push_back(rank);
        }
    }
    return result;
}

bool SharedExchange::one_has_failed() const noexcept {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (control(rank).standing.load() == Standing::failed) {
            return true;
        }
    }
    return false;
}

// Two words are written and read crosswise here: a rank that fails stores its standing and then loads the others' `busy`;
// one that wants to sum stores its `busy` and then loads all standings (AtBuckets). All four are sequentially consistent.
// So in their one order either the standing comes before its load, and that rank touches nothing; or `busy` comes before
// its load, and we wait for that rank. With weaker ones, neither might see the other.
void SharedExchange::stand_down(SharedFailure failure) noexcept {
    {
        const std::lock_guard lock(mutex_);
        has_failed_ = true;
    }
    failure.origin = failure.origin < ranks() ? failure.origin : rank_;
    show(own_.control(), failure);
    own_.control().standing.store(Standing::failed);
    ring_all();
}

// Who is at a bucket for that long has been put aside. It will not call its unit done, but may still write it.
bool SharedExchange::others_let_go() const noexcept {
    const auto until = Clock::now() + letting_go;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        const auto& peer = peers_[rank];
        while (peer && control(rank).busy.load() != 0 && peer->runs()) {
            if (Clock::now() >= until) {
                return false;
            }
            std::this_thread::sleep_for(milliseconds{1});
        }
    }
    return true;
}

void SharedExchange::fail(const SharedExchangeError& error) {
    broken_ = error.what();
    stand_down(error.failure());
    in_use_ = !others_let_go();
    if (between_ != nullptr) {
        broken_ = between_->agreed(broken_, error.secondary_error_delay());
        in_use_ = in_use_ || between_->uses_block();
    }
}

void SharedExchange::fail_unless_broken(const SharedExchangeError& error) {
    const std::lock_guard turn(completing_);
    if (broken_.empty()) {
        fail(error);
    }
}

void SharedExchange::give_up(const std::string& why) {
    fail_unless_broken(SharedExchangeError(names_[rank_] + why));
}

bool SharedExchange::give_up_if_one_has_ended() {
    const Ranks gone = ended();
    if (!gone.empty()) {
        fail_unless_broken(ended_error(gone));
    }
    return !gone.empty();
}

SharedExchangeError SharedExchange::ended_error(const Ranks& ranks) const {
    if (control(ranks.front()).standing.load() == Standing::failed) {
        return failed_error(ranks);  // it may have ended for somebody else's reason
    }
    return SharedExchangeError(listed(ranks) + rank_has_ended,
                               {.cause = FailureCause::ended, .blamed = bits_of(ranks)});
}

// What the first of them says, unless another one knows of a rank that has ended.
SharedExchangeError SharedExchange::failed_error(const Ranks& ranks) const {
    SharedFailure failure;
    for (const std::size_t rank : ranks) {
        const SharedFailure theirs = shown(control(rank), rank, this->ranks());
        if (rank == ranks.front() ||
            (failure.cause != FailureCause::ended && theirs.cause == FailureCause::ended)) {
            failure = theirs;
        }
    }
    return SharedExchangeError(in_words(failure), failure, follower_error_delay);
}

// A rank that is to blame also learns who has waited for it; the others only who is to blame.
std::string SharedExchange::in_words(const SharedFailure& failure) const {
    Ranks ranks;
    for (std::size_t rank = 0; rank < this->ranks(); ++rank) {
        if ((failure.blamed >> rank & 1U) != 0) {
            ranks.push_back(rank);
        }
    }
    const bool is_ours = (failure.blamed >> rank_ & 1U) != 0;
    const std::string known = failure.origin < this->ranks() ? names_[failure.origin] : "another rank";
    const std::string origin = is_ours ? known : "another rank";
    const std::string blamed = listed(ranks);
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

}  // namespace ddpdiag
