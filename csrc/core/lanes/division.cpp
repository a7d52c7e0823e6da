#include "core/lanes/division.hpp"

#include <algorithm>
#include <utility>

namespace ddpdiag {
namespace {

// A division that is faster by less is not worth its threads, which take processor time from the training.
constexpr std::int64_t worthwhile_percent = 95;
// Most of those that all ranks have ended.
constexpr std::uint64_t rounds_needed = 3;
constexpr int most_in_a_row = 3;
constexpr std::int64_t ns_per_us = 1000;
// A share in these over a time in microseconds keeps enough digits, and the sum of 64 times 2^16 fits 64 bits.
constexpr unsigned speed_bits = 24;

}  // namespace

bool LaneShares::divided() const {
    return std::ranges::any_of(ends, [](auto end) { return end != 0 && end != whole; });
}

LaneShares LaneShares::alone(std::size_t lane, std::size_t lanes) {
    LaneShares result{.ends = std::vector<std::uint64_t>(lanes, whole)};
    std::fill_n(result.ends.begin(), lane, 0);
    return result;
}

Division::Division(LaneShares shares, std::size_t best, bool tried)
    : shares_(std::move(shares)),
      best_(best),
      tried_(tried && shares_.divided()),
      divides_(shares_.divided()) {
    if (tried_) {
        times_.assign(trial_turns * (1 + shares_.ends.size()), unknown);
    }
}

bool Division::in_trial(std::uint64_t turn) const noexcept {
    return tried_ && turn >= begin_ && turn - begin_ < trial_turns;
}

Division::Turn Division::next() {
    const std::uint64_t turn = turns_++;
    const std::uint64_t telling = begin_ + trial_turns + settling_;
    Turn result{.number = turn, .divided = divides_};
    if (in_trial(turn)) {
        result.divided = divided_in_trial(turn - begin_);
    } else if (tried_) {
        result.tell = turn == telling;
        result.learn = turn == telling + settling_;
    }
    return result;
}

void Division::took(std::uint64_t turn, std::int64_t ns) {
    if (in_trial(turn)) {
        auto& time = times_[turn - begin_];
        time = time == unknown ? ns : time + ns;
    }
}

void Division::took(std::uint64_t turn, std::size_t lane, std::int64_t ns) {
    if (in_trial(turn)) {
        times_[trial_turns + (turn - begin_) * shares_.ends.size() + lane] = ns;
    }
}

void Division::agreed(const std::vector<std::int64_t>& times) {
    std::uint64_t known = 0;
    std::uint64_t faster = 0;
    for (std::uint64_t at = 0; at < trial_turns; at += round_turns) {
        if (std::ranges::none_of(times.begin() + static_cast<std::ptrdiff_t>(at),
                                 times.begin() + static_cast<std::ptrdiff_t>(at + round_turns),
                                 [](auto ns) { return ns == unknown; })) {
            ++known;
            const std::int64_t divided = times[at] + times[at + 1];
            const std::int64_t whole = times[at + 2] + times[at + 3];
            faster += static_cast<std::uint64_t>(divided / worthwhile_percent < whole / 100);
        }
    }
    const bool judged = known >= rounds_needed;
    if (judged) {
        divides_ = 2 * faster > known;
    } else {
        settling_ = std::min(2 * settling_, longest_rest);
    }
    const bool again = judged && share_anew(times) && ++in_a_row_ < most_in_a_row;
    if (!again) {
        begin_ = turns_ + rest_;
        rest_ = std::min(4 * rest_, longest_rest);
        in_a_row_ = 0;
    } else {
        begin_ = turns_;
    }
    std::ranges::fill(times_, unknown);
}

bool Division::share_anew(const std::vector<std::int64_t>& times) {
    const std::size_t lanes = shares_.ends.size();
    std::vector<std::uint64_t> speeds(lanes, 0);
    std::uint64_t sum = 0;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        std::vector<std::int64_t> parts;
        for (std::size_t turn = 0; turn < trial_turns; ++turn) {
            const std::int64_t ns = times[trial_turns + turn * lanes + lane];
            if (divided_in_trial(turn) && ns != unknown) {
                parts.push_back(ns);
            }
        }
        if (shares_.of(lane) == 0) {
            continue;  // it has carried nothing
        }
        if (parts.empty()) {
            return false;
        }
        const auto middle = parts.begin() + static_cast<std::ptrdiff_t>(parts.size() / 2);
        std::ranges::nth_element(parts, middle);
        speeds[lane] = (shares_.of(lane) << speed_bits) /
                       static_cast<std::uint64_t>(std::max<std::int64_t>(1, *middle / ns_per_us));
        sum += speeds[lane];
    }
    if (sum == 0) {
        return false;
    }
    LaneShares found{.ends = {}};
    std::uint64_t carried = 0;
    bool moved = false;
    bool far = false;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        carried += speeds[lane];
        found.ends.push_back(carried * LaneShares::whole / sum);
        const std::uint64_t before = shares_.of(lane);
        const std::uint64_t now = found.of(lane);
        const std::uint64_t change = before < now ? now - before : before - now;
        moved = moved || change > before / 32;
        far = far || change > before / 8;
    }
    if (moved) {
        shares_ = std::move(found);
        ++version_;
        best_ = static_cast<std::size_t>(std::ranges::max_element(speeds) - speeds.begin());
    }
    return far;
}

}  // namespace ddpdiag
