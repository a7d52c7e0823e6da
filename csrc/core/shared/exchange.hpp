// Averages buckets over the ranks of one host, in memory that all of them share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/shared/between.hpp"
#include "core/shared/block.hpp"
#include "core/shared/board.hpp"
#include "core/shared/bucket.hpp"
#include "core/shared/errors.hpp"
#include "core/shared/mapped_buckets.hpp"
#include "core/shared/member.hpp"
#include "core/shared/places.hpp"
#include "core/shared/spin_budget.hpp"
#include "core/shared/wait.hpp"

namespace ddpdiag {

// All ranks announce their buckets in the same order. When all have announced one, each rank that has time claims
// units of it one after the other, sums them from all ranks' memory and writes the sums into all of it. So no
// rank waits for one that the system has put aside, unless that one has claimed a unit. With ranks on several hosts:
// see HostsSum.
//
// A rank that fails lets go of its buckets, which then may hold anything, while others may come late and find that all
// have announced. So it says that it has failed, and then waits for those who are at its buckets; and whoever wants to
// touch another rank's bucket says so first, and then looks whether a rank has failed (Board::fail, AtBuckets). So every
// rank gets either the average of exactly what all ranks brought, or an error; and after one, only errors.
//
// For two threads at a time: one enters and announces, the other completes what was announced, in the same order. The
// first may complete small buckets itself.
class SharedExchange {
public:
    // What is summed in less time than it takes to hand it to another thread.
    static constexpr std::uint64_t at_once_bytes = std::uint64_t{1} << 20U;

    // `peers`: by rank, with nothing for our own. `names`: what errors call each rank. `timeout`: how long a bucket
    // may wait for the other ranks. All ranks have agreed on the members before. `between`: the way to the other hosts,
    // each with the same number of ranks; nullptr: there are none.
    SharedExchange(SharedMember own, std::vector<std::optional<SharedPeer>> peers,
                   std::vector<std::string> names, std::chrono::milliseconds timeout,
                   std::shared_ptr<SharedBetween> between = nullptr);
    // The other ranks see that we have left; if a bucket is not complete, that we have failed. Neither thread may be at
    // work.
    ~SharedExchange();
    SharedExchange(const SharedExchange&) = delete;
    SharedExchange& operator=(const SharedExchange&) = delete;

    [[nodiscard]] std::size_t ranks() const noexcept { return board_.ranks(); }

    // The block's place. Throws std::runtime_error if too many blocks are alive.
    [[nodiscard]] std::size_t enter(const std::shared_ptr<const SharedBlock>& block) {
        return places_.enter(block);
    }
    // From now on until it is complete, other ranks may write into the bucket.
    void announce(SharedBucket bucket);
    // For the thread that completes: our next bucket will not come. From now on the other ranks get no announcement of
    // ours, and every bucket completes with an error: our name and `why`.
    void give_up(const std::string& why);
    // The same if another rank of this host has ended, which is then to blame. Whether it has.
    bool give_up_if_one_has_ended();
    // Waits until the oldest announced bucket holds the average, and returns the statistics of what we brought, or if it
    // was not watched, only what of it is not finite. Throws SharedExchangeError: the bucket's content is then undefined,
    // and unless the error says so, nobody uses it any more.
    // `goes_on`: asked now and then while it waits; false ends the wait with an error.
    GradientStatistics complete(const std::function<bool()>& goes_on = {});
    // For the thread that announces: completes the bucket that it has just announced if it has at most at_once_bytes,
    // all other ranks are there within some microseconds, and no earlier one is left. Nothing: it is still to be
    // completed. `begins`: called before it is summed, and perhaps if it is not.
    [[nodiscard]] std::optional<GradientStatistics> complete_at_once(
        const std::function<void()>& begins = {});

private:
    using Clock = std::chrono::steady_clock;

    void announce_what_fits();
    // Spins, for at most about half of what it costs to hand a bucket to another thread and to be woken when it is done.
    template <typename Condition>
    [[nodiscard]] bool comes_soon(const Condition& condition) noexcept;
    void fail(const SharedExchangeError& error);
    void fail_unless_broken(const SharedExchangeError& error);
    // We announce nothing any more, and nobody touches our buckets from now on, except those who are at them already.
    void stand_down(const SharedFailure& failure) noexcept;
    // The oldest announced bucket, and its operation. Throws std::logic_error: there is none.
    [[nodiscard]] SharedBucket oldest(std::uint64_t& number);
    // What the ranks found in our bucket of the operation, which is done.
    GradientStatistics let_go_of_oldest(std::uint64_t number);
    void complete(std::uint64_t number, const SharedBucket& ours, const Wait& wait);

    Board board_;
    std::chrono::milliseconds timeout_;
    std::shared_ptr<SharedBetween> between_;
    std::uint64_t process_;
    bool outnumbers_cores_;  // the ranks of this host do
    OwnPlaces places_;

    std::mutex mutex_;                // of these four
    std::deque<SharedBucket> queue_;  // from operation completed_ on
    std::uint64_t announced_ = 0;     // operations
    std::uint64_t completed_ = 0;     // operations
    bool has_failed_ = false;         // we have failed: nothing is announced any more

    std::mutex completing_;  // held while a bucket is completed, with its waits; of all that follows
    MappedBuckets mapped_;
    std::string broken_;   // why; empty: it is not
    bool in_use_ = false;  // see SharedExchangeError; of the oldest bucket
    SpinBudget spin_budget_;
};

}  // namespace ddpdiag
