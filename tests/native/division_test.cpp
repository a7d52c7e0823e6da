#include "core/lanes/division.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "check.hpp"

namespace {

using ddpdiag::Division;
using ddpdiag::LaneShares;

constexpr auto whole = LaneShares::whole;

LaneShares shares(std::uint64_t first) {
    return {.ends = {first, whole}};
}

// What the ranks see of two lanes: nanoseconds of a buffer that goes whole over a lane, and of any part beside the other.
struct Links {
    std::array<std::int64_t, 2> alone;
    std::array<std::int64_t, 2> at_once;
};

std::int64_t part_ns(std::int64_t whole_ns, std::uint64_t share) {
    return whole_ns * static_cast<std::int64_t>(share) / static_cast<std::int64_t>(whole);
}

// So many turns of one rank alone, each ended before the next; returns which were divided.
std::vector<bool> run(Division& division, const Links& links, int turns) {
    std::vector<bool> divided;
    std::vector<std::int64_t> agreed;
    for (int count = 0; count < turns; ++count) {
        auto turn = division.next();
        if (turn.tell) {
            agreed = division.noted();
        }
        if (turn.learn) {
            division.agreed(agreed);
            turn.divided = division.divides();
        }
        divided.push_back(turn.divided);
        if (turn.divided) {
            std::int64_t longest = 0;
            for (const std::size_t lane : {0U, 1U}) {
                const auto ns = part_ns(links.at_once.at(lane), division.shares().of(lane));
                division.took(turn.number, lane, ns);
                longest = std::max(longest, ns);
            }
            division.took(turn.number, longest);
        } else {
            division.took(turn.number, links.alone.at(division.best()));
        }
    }
    return divided;
}

constexpr int one_trial = 40;
constexpr Links right{.alone = {300'000'000, 100'000'000}, .at_once = {300'000'000, 100'000'000}};

}  // namespace

CASE("a division that pays stays, with half of the trial's turns whole") {
    Division division(shares(whole / 4), 1, /*tried=*/true);
    const auto divided = run(division, right, one_trial);
    CHECK(std::ranges::count(divided, false) == Division::trial_turns / 2);
    CHECK(division.divides() && divided.back());
    CHECK(division.version() == 0);
}

CASE("a division that does not pay ends, and is tried again ever more rarely") {
    // Both go over one link.
    Division division(shares(whole / 2), 0, /*tried=*/true);
    constexpr Links one_link{.alone = {100'000'000, 100'000'000}, .at_once = {200'000'000, 200'000'000}};
    const auto divided = run(division, one_link, one_trial);
    CHECK(!division.divides() && !divided.back());
    const auto later = run(division, one_link, 20'000);
    const auto tried = std::ranges::count(later, true);
    CHECK(tried > 0 && tried < 200);
    // The link gets company.
    (void)run(division, right, 5000);
    CHECK(division.divides());
}

CASE("a gain of less than 5% is none") {
    for (const auto& [percent, pays] : {std::pair{94, true}, std::pair{96, false}}) {
        Division division(shares(whole / 2), 0, /*tried=*/true);
        const std::int64_t ns = 2'000'000LL * percent;
        (void)run(division, {.alone = {100'000'000, 100'000'000}, .at_once = {ns, ns}}, one_trial);
        CHECK(division.divides() == pays);
    }
}

CASE("shares follow what the parts take, and a trial with wrong ones is followed by another") {
    // Measured while something else was in the way of the faster lane: what is divided now is slower than it alone.
    Division division(shares(whole * 3 / 4), 0, /*tried=*/true);
    (void)run(division, right, one_trial - 5);
    CHECK(division.version() == 1 && division.best() == 1);
    CHECK(division.shares().of(0) >= whole / 4 - 8 && division.shares().of(0) <= whole / 4 + 8);
    (void)run(division, right, one_trial);
    CHECK(division.divides());
}

CASE("turns that no rank has ended decide nothing, and the next trial waits longer for them") {
    Division division(shares(whole / 4), 1, /*tried=*/true);
    std::vector<int> learned;
    for (int count = 0; count < 1000; ++count) {
        const auto turn = division.next();
        if (turn.learn) {
            learned.push_back(count);
            division.agreed(division.noted());
        }
    }
    CHECK(division.divides() && division.version() == 0);
    CHECK(learned.size() == 3);
    // The turns of the trial, those until all have ended, twice, and the rest.
    CHECK(learned[0] == 2 + 20 + 2 * 4 && learned[1] - learned[0] == 1 + 128 + 20 + 2 * 8);
}

CASE("what is not to be tried is divided, and what is not divided is not tried") {
    Division given(shares(whole / 4), 1, /*tried=*/false);
    Division alone(LaneShares::alone(1, 2), 1, /*tried=*/true);
    CHECK(LaneShares::alone(1, 2).of(0) == 0 && LaneShares::alone(1, 2).of(1) == whole);
    for (int count = 0; count < 300; ++count) {
        CHECK(given.next().divided);
        const auto turn = alone.next();
        CHECK(!turn.divided && !turn.tell && !turn.learn);
    }
}
