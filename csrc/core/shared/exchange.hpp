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
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/shared/announcement.hpp"
#include "core/shared/between.hpp"
#include "core/shared/block.hpp"
#include "core/shared/failure.hpp"
#include "core/shared/member.hpp"
#include "core/shared/places.hpp"
#include "core/shared/spin_budget.hpp"
#include "core/shared/sum.hpp"
#include "core/shared/wire.hpp"

namespace ddpdiag {

// The text names the ranks that are to blame. No bucket of this exchange is averaged any more.
class SharedExchangeError : public std::runtime_error {
public:
    explicit SharedExchangeError(const std::string& text, const SharedFailure& failure = {},
                                 std::chrono::milliseconds secondary_error_delay = {}, bool in_use = false)
        : std::runtime_error(text),
          failure_(failure),
          secondary_error_delay_(secondary_error_delay),
          in_use_(in_use) {}
    [[nodiscard]] const SharedFailure& failure() const noexcept { return failure_; }
    // Where there are several hosts: how long to listen for the reason of a rank that may know it better.
    [[nodiscard]] std::chrono::milliseconds secondary_error_delay() const noexcept {
        return secondary_error_delay_;
    }
    // Others may still read the bucket's block and write to it, for nobody knows how long: its bytes must stay as they
    // are, and it must not be used for anything else.
    [[nodiscard]] bool in_use() const noexcept { return in_use_; }

private:
    SharedFailure failure_;
    std::chrono::milliseconds secondary_error_delay_;
    bool in_use_;
};

// One bucket of ours.
struct SharedBucket {
    std::shared_ptr<const SharedBlock> block;
    std::size_t place = 0;       // of the block, from enter()
    std::uint64_t offset = 0;    // in the block
    std::uint64_t sequence = 0;  // the same on all ranks, or they are not at the same bucket
    SharedSum sum;               // the same on all ranks
    // For several hosts: their sums travel in 16 bits; nullptr: as they are. The same on all ranks.
    std::shared_ptr<SharedWire> wire = nullptr;
    bool watched = false;  // whoever sums it takes the statistics of what we bring
};

// All ranks announce their buckets in the same order. When all have announced one, each rank that has time claims
// units of it one after the other, sums them from all ranks' memory and writes the sums into all of it. So no
// rank waits for one that the system has put aside, unless that one has claimed a unit.
//
// With ranks on several hosts, the ranks of each host sum a bucket into one of them, a part into each; then each rank
// adds up its part with those of the other hosts, and copies the sum into the buckets of all ranks of its host.
//
// A rank that fails lets go of its buckets, which then may hold anything, while others may come late and find that all
// have announced. So it says that it has failed, and then waits for those who are at its buckets; and whoever wants to
// touch another rank's bucket says so first, and then looks whether a rank has failed (stand_down(), AtBuckets). So every
// rank gets either the average of exactly what all ranks brought, or an error; and after one, only errors.
//
// For two threads at a time: one enters and announces, the other completes what was announced, in the same order. The
// first may complete small buckets itself.
class SharedExchange {
public:
    // What a rank sums at a time. It decides how evenly the work is spread, and how long the others may have to wait
    // for the last unit.
    static constexpr std::uint64_t unit_bytes = std::uint64_t{64} << 10U;
    // Of large buckets, more: fewer claims, and longer stretches of memory. Of small ones, less: more ranks can help.
    [[nodiscard]] static constexpr std::uint64_t unit_of(std::uint64_t bucket_bytes) noexcept {
        if (bucket_bytes < 4 * unit_bytes) {
            return unit_bytes / 4;
        }
        return bucket_bytes < 128 * unit_bytes ? unit_bytes : 4 * unit_bytes;
    }
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

    [[nodiscard]] std::size_t ranks() const noexcept { return peers_.size(); }

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
    using Ranks = std::vector<std::size_t>;
    class Wait;
    class AtBuckets;

    void announce_what_fits();
    // Spins, for at most about half of what it costs to hand a bucket to another thread and to be woken when it is done.
    template <typename Condition>
    [[nodiscard]] bool comes_soon(const Condition& condition) noexcept;
    void fail(const SharedExchangeError& error);
    void fail_unless_broken(const SharedExchangeError& error);
    // Nobody touches our buckets from now on, but those who are at them already.
    void stand_down(SharedFailure failure) noexcept;
    // Waits until no rank that runs is at a bucket; false: one still is when the time is over.
    [[nodiscard]] bool others_let_go() const noexcept;
    // `ranks` have, one at least.
    [[nodiscard]] SharedExchangeError ended_error(const Ranks& ranks) const;
    // Why one of these has failed.
    [[nodiscard]] SharedExchangeError failed_error(const Ranks& ranks) const;
    [[nodiscard]] std::string in_words(const SharedFailure& failure) const;
    // The oldest announced bucket, and its operation. Throws std::logic_error: there is none.
    [[nodiscard]] SharedBucket oldest(std::uint64_t& number);
    // What the ranks found in our bucket of the operation, which is done.
    GradientStatistics let_go_of_oldest(std::uint64_t number);
    void complete(std::uint64_t number, const SharedBucket& ours, Wait& wait);
    void complete_over_hosts(std::uint64_t number, const SharedBucket& ours, Wait& wait);
    // What a rank carries of a bucket: nothing, where there are fewer units than ranks.
    struct Part {
        std::uint64_t begin;
        std::uint64_t bytes;
    };
    [[nodiscard]] Part own_part(const SharedBucket& bucket) const noexcept;
    // Adds up our part with those of the other hosts, whose keys must be the same.
    void add_up(const Part& part, const SharedBucket& ours, Wait& wait);
    void add_up_in_16_bits(const Part& part, const SharedBucket& ours, Wait& wait);
    // Copies our part into the buckets of this host, and waits until its other ranks have done so.
    void hand_out(std::uint64_t number, const Part& part, const std::vector<std::byte*>& buckets, Wait& wait);
    // `blamed`: see SharedFailure.
    void require_same(const BucketKey& ours, const std::string& name, const BucketKey& theirs,
                      std::uint64_t blamed = 0) const;
    // Claims units until there are none, and sums them from `buckets` into those that `targets` names for a unit. Throws
    // SharedExchangeError: a rank has failed before all units were done.
    using Targets = std::function<std::span<std::byte* const>(std::uint64_t unit)>;
    void sum_units(std::uint64_t number, const SharedBucket& ours, const SharedSum& sum,
                   const std::vector<std::byte*>& buckets, const Targets& targets);
    // Into all of them; empty: nothing is left to do.
    void sum_units(std::uint64_t number, const SharedBucket& ours, const std::vector<std::byte*>& buckets);
    [[nodiscard]] std::uint64_t watched_in(std::uint64_t number) const noexcept;
    [[nodiscard]] static std::uint64_t units_of(const SharedBucket& bucket) noexcept;
    [[nodiscard]] bool is_done(std::uint64_t number, const SharedBucket& ours) const noexcept;
    [[nodiscard]] bool has_announced(std::size_t rank, std::uint64_t number) const noexcept;
    [[nodiscard]] bool all_have_announced(std::uint64_t number) const noexcept;
    [[nodiscard]] Ranks not_announced_by(std::uint64_t number) const;
    [[nodiscard]] Ranks not_handed_out_by(std::uint64_t number) const;
    [[nodiscard]] Ranks busy_with(std::uint64_t number) const;
    [[nodiscard]] Ranks ended() const;
    [[nodiscard]] Ranks failed() const;
    [[nodiscard]] bool one_has_failed() const noexcept;
    // Empty: the operation is done meanwhile.
    [[nodiscard]] std::vector<std::byte*> buckets(std::uint64_t number, const SharedBucket& ours);
    [[nodiscard]] std::byte* bucket_of(std::size_t rank, const Announced& theirs, std::uint64_t number,
                                       const SharedBucket& ours);
    [[nodiscard]] SharedControl& control(std::size_t rank) const noexcept;
    [[nodiscard]] std::string listed(const Ranks& ranks) const;
    void ring_all() const noexcept;

    SharedMember own_;
    std::vector<std::optional<SharedPeer>> peers_;
    std::vector<std::string> names_;
    std::chrono::milliseconds timeout_;
    std::shared_ptr<SharedBetween> between_;
    std::size_t rank_;
    std::uint64_t process_;
    bool outnumbers_cores_;  // the ranks of this host do
    OwnPlaces places_;

    std::mutex mutex_;                // of these four
    std::deque<SharedBucket> queue_;  // from operation completed_ on
    std::uint64_t announced_ = 0;     // operations
    std::uint64_t completed_ = 0;     // operations
    bool has_failed_ = false;         // we have failed: nothing is announced any more

    std::mutex completing_;  // held while a bucket is completed, with its waits; of all that follows
    std::vector<std::optional<PeerPlaces>> mapped_;  // by rank
    std::string broken_;                             // why; empty: it is not
    bool in_use_ = false;                            // see SharedExchangeError; of the oldest bucket
    SpinBudget spin_budget_;
};

}  // namespace ddpdiag
