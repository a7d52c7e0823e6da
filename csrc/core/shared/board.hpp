// What the ranks of one host show to each other in the memory that they share, and what they read there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/shared/announcement.hpp"
#include "core/shared/failure.hpp"
#include "core/shared/layout.hpp"
#include "core/shared/member.hpp"

namespace ddpdiag {

using Ranks = std::vector<std::size_t>;

// It decides nothing. What it accesses, and in which order, is what the ranks have to keep to: that is all here, and in
// AtBuckets. For any thread.
class Board {
public:
    // `peers`: by rank, with nothing for our own. `names`: what errors call each rank.
    Board(SharedMember own, std::vector<std::optional<SharedPeer>> peers, std::vector<std::string> names);

    // Of this host.
    [[nodiscard]] std::size_t ranks() const noexcept { return peers_.size(); }
    [[nodiscard]] std::size_t own_rank() const noexcept { return rank_; }
    [[nodiscard]] const std::string& name(std::size_t rank) const noexcept { return names_[rank]; }
    [[nodiscard]] std::string listed(const Ranks& ranks) const;
    [[nodiscard]] SharedControl& control(std::size_t rank) const noexcept {
        const auto& peer = peers_[rank];
        return peer ? peer->control() : own_.control();
    }
    [[nodiscard]] SharedControl& own() const noexcept { return own_.control(); }
    // Whether the process of another rank does.
    [[nodiscard]] bool runs(std::size_t rank) const noexcept {
        const auto& peer = peers_[rank];
        return peer && peer->runs();
    }

    // Wakes the others.
    void ring_all() const noexcept;
    // Sleeps until one of them rings or the time is over; not at all if the condition holds.
    template <typename Condition>
    void sleep(const Condition& condition, std::chrono::milliseconds limit) const {
        SharedControl& ours = own();
        const std::uint32_t seen = ours.rings.load();
        ours.sleeping.store(1);
        if (!condition()) {
            own_.bell().wait(ours.rings, seen, limit);
        }
        ours.sleeping.store(0);
    }

    // Our bucket of operation `number`, in the place of one that is complete on all ranks. Rings if it is the last.
    void announce(std::uint64_t number, const Announced& bucket) const noexcept;
    [[nodiscard]] Announcement& announcement(std::size_t rank, std::uint64_t number) const noexcept {
        return control(rank).announcements[number % shared_operations];
    }
    [[nodiscard]] bool has_announced(std::size_t rank, std::uint64_t number) const noexcept {
        return announcement(rank, number).tag.load() == number + 1;
    }
    [[nodiscard]] bool all_have_announced(std::uint64_t number) const noexcept;
    [[nodiscard]] Ranks not_announced_by(std::uint64_t number) const;
    // A bit per rank whose bucket is watched.
    [[nodiscard]] std::uint64_t watched_in(std::uint64_t number) const noexcept;

    // How far the ranks are with the units of an operation.
    [[nodiscard]] Progress& progress(std::uint64_t number) const noexcept {
        return control(0).progress[number % shared_operations];
    }
    // With several hosts: our part is in the buckets of all. Rings if it is the last.
    void hand_out(std::uint64_t number) const;
    [[nodiscard]] Ranks not_handed_out_by(std::uint64_t number) const;

    // The ranks that are at the operation's buckets.
    [[nodiscard]] Ranks busy_with(std::uint64_t number) const;
    // Those that are to blame: not one that had failed before it ended, as we are about to, if there is another.
    [[nodiscard]] Ranks ended() const;
    [[nodiscard]] Ranks failed() const;
    [[nodiscard]] bool one_has_failed() const noexcept;
    [[nodiscard]] Standing standing(std::size_t rank) const noexcept { return control(rank).standing.load(); }
    // Why a rank has failed, as it says.
    [[nodiscard]] SharedFailure failure_of(std::size_t rank) const noexcept {
        return shown(control(rank), rank, ranks());
    }

    // We take part no more, and have completed all that we have announced.
    void leave() const noexcept;
    // From now on nobody touches our buckets, except those who are at them already.
    void fail(SharedFailure failure) const noexcept;
    // After that: waits until no rank that runs is at a bucket; false: one still is when the time is over.
    [[nodiscard]] bool others_let_go() const noexcept;

private:
    SharedMember own_;
    std::vector<std::optional<SharedPeer>> peers_;
    std::vector<std::string> names_;
    std::size_t rank_;
};

}  // namespace ddpdiag
