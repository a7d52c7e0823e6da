#include "core/shared/spin_budget.hpp"

#include "check.hpp"

namespace {

using ddpdiag::SpinBudget;
using namespace std::chrono_literals;

constexpr auto start = SpinBudget::Clock::time_point(1h);

// Spins in vain at `now` for as long as it may.
SpinBudget::Clock::duration spin(SpinBudget& spin_budget, SpinBudget::Clock::time_point now) {
    const auto spun = spin_budget.left(now);
    spin_budget.in_vain(spun);
    return spun;
}

}  // namespace

CASE("one spin in vain takes nothing from the next") {
    SpinBudget spin_budget;
    CHECK(spin(spin_budget, start) == SpinBudget::once);
    CHECK(spin_budget.left(start + SpinBudget::once) == SpinBudget::once);
}

CASE("in the long run, a part of the time is spun in vain, and no more") {
    SpinBudget spin_budget;
    SpinBudget::Clock::duration spun{};
    auto now = start;
    while (now < start + 1s) {
        const auto one = spin(spin_budget, now);
        CHECK(one <= SpinBudget::once);
        spun += one;
        now += one + 1us;
    }
    CHECK(spun <= (now - start) / SpinBudget::rarity + SpinBudget::kept * SpinBudget::once);
    CHECK(spun >= (now - start) / SpinBudget::rarity - SpinBudget::once);
}

CASE("what is kept is limited, however long nothing was spun") {
    SpinBudget spin_budget;
    static_cast<void>(spin_budget.left(start));
    const auto now = start + 1h;
    for (int i = 0; i < SpinBudget::kept; ++i) {
        CHECK(spin(spin_budget, now) == SpinBudget::once);
    }
    CHECK(spin_budget.left(now) == 0s);
    CHECK(spin_budget.left(now + SpinBudget::rarity * SpinBudget::once) == SpinBudget::once);
}

CASE("what comes in time costs nothing") {
    SpinBudget spin_budget;
    for (int i = 0; i < 1000; ++i) {
        CHECK(spin_budget.left(start) == SpinBudget::once);
    }
}
