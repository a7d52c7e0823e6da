#include "core/shared/spin_budget.hpp"

#include "check.hpp"

namespace {

using ddpdiag::Patience;
using namespace std::chrono_literals;

constexpr auto start = Patience::Clock::time_point(1h);

// Spins in vain at `now` for as long as it may.
Patience::Clock::duration spin(Patience& patience, Patience::Clock::time_point now) {
    const auto spun = patience.left(now);
    patience.in_vain(spun);
    return spun;
}

}  // namespace

CASE("one spin in vain takes nothing from the next") {
    Patience patience;
    CHECK(spin(patience, start) == Patience::once);
    CHECK(patience.left(start + Patience::once) == Patience::once);
}

CASE("in the long run, a part of the time is spun in vain, and no more") {
    Patience patience;
    Patience::Clock::duration spun{};
    auto now = start;
    while (now < start + 1s) {
        const auto one = spin(patience, now);
        CHECK(one <= Patience::once);
        spun += one;
        now += one + 1us;
    }
    CHECK(spun <= (now - start) / Patience::rarity + Patience::kept * Patience::once);
    CHECK(spun >= (now - start) / Patience::rarity - Patience::once);
}

CASE("what is kept is limited, however long nothing was spun") {
    Patience patience;
    static_cast<void>(patience.left(start));
    const auto now = start + 1h;
    for (int i = 0; i < Patience::kept; ++i) {
        CHECK(spin(patience, now) == Patience::once);
    }
    CHECK(patience.left(now) == 0s);
    CHECK(patience.left(now + Patience::rarity * Patience::once) == Patience::once);
}

CASE("what comes in time costs nothing") {
    Patience patience;
    for (int i = 0; i < 1000; ++i) {
        CHECK(patience.left(start) == Patience::once);
    }
}
