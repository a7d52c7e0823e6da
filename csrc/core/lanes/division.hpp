// Whether buffers of one size go in parts over all lanes or whole over the best one, as their own turns have shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace ddpdiag {

// Where the part of each lane ends, in parts of `LaneShares::whole`.
struct LaneShares {
    // So that no product overflows.
    static constexpr std::uint64_t whole = std::uint64_t{1} << 16U;

    std::vector<std::uint64_t> ends;  // of each lane; the last is the whole

    [[nodiscard]] std::uint64_t of(std::size_t lane) const {
        return ends[lane] - (lane == 0 ? 0 : ends[lane - 1]);
    }
    // Whether several lanes have a part.
    [[nodiscard]] bool divided() const;
    [[nodiscard]] static LaneShares alone(std::size_t lane, std::size_t lanes);
};

// Trials come at the same turns on all ranks: some turns divided, some whole, in alternation. Each rank notes how long
// its own took; some turns later the ranks agree on the shortest time of each turn, which is that of the rank that came
// last and waited for none. From that all conclude the same: new shares, from what each lane took for its part, and
// whether the division pays. It does if it was faster by 5% in most rounds. Whole numbers, so that every machine
// computes the same. The later the rarer: what a trial costs is lost in the turns between. Not for several threads.
class Division {
public:
    struct Turn {
        std::uint64_t number = 0;
        bool divided = false;
        bool tell = false;   // the ranks now begin to agree on what noted() says
        bool learn = false;  // and this turn needs the outcome first: agreed(), then divides()
    };
    static constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::max();

    // The first turns of a size are slower than the others: connections and memory are new.
    static constexpr std::uint64_t first = 2;
    static constexpr std::uint64_t rounds = 5;
    static constexpr std::uint64_t round_turns = 4;  // two divided, two whole
    static constexpr std::uint64_t trial_turns = rounds * round_turns;
    static constexpr std::uint64_t rest = 128;  // turns until the next trial; four times as many each time
    static constexpr std::uint64_t longest_rest = 4096;

    // `shares`: how to divide; of one lane alone if it cannot pay. `tried`: false: it is divided without a trial.
    Division(LaneShares shares, std::size_t best, bool tried);

    // Of the next buffer.
    [[nodiscard]] Turn next();
    // Of the buffer that next() was last asked for, after agreed(), which may have changed it.
    [[nodiscard]] bool divides() const noexcept { return divides_; }
    // This rank's times of a turn, or more of them: until the buffer was summed, and until a lane's part was.
    void took(std::uint64_t turn, std::int64_t ns);
    void took(std::uint64_t turn, std::size_t lane, std::int64_t ns);

    [[nodiscard]] const std::vector<std::int64_t>& noted() const noexcept { return times_; }
    // The least of what each rank notes.
    void agreed(const std::vector<std::int64_t>& times);

    [[nodiscard]] const LaneShares& shares() const noexcept { return shares_; }
    // Counts changes of the shares.
    [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
    // The lane of whole buffers.
    [[nodiscard]] std::size_t best() const noexcept { return best_; }

private:
    [[nodiscard]] bool in_trial(std::uint64_t turn) const noexcept;
    [[nodiscard]] static bool divided_in_trial(std::uint64_t turn) noexcept { return turn / 2 % 2 == 0; }
    // Whether they have changed by so much that the trial says nothing about them.
    bool share_anew(const std::vector<std::int64_t>& times);

    LaneShares shares_;
    std::size_t best_;
    bool tried_;
    bool divides_;
    std::uint64_t version_ = 0;
    std::uint64_t turns_ = 0;
    std::uint64_t begin_ = first;  // of this trial, or the next one
    std::uint64_t settling_ = 4;   // turns after it until those on their way have ended
    std::uint64_t rest_ = rest;
    int in_a_row_ = 0;                 // trials without a rest
    std::vector<std::int64_t> times_;  // of this trial's turns, and of each turn's parts
};

}  // namespace ddpdiag
