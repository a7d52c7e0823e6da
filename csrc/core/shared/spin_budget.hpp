// How long a thread may spin for others before it sleeps.
#pragma once

#include <algorithm>
#include <chrono>

namespace ddpdiag {

// At most `once` at a time, and in the long run one part in `rarity` of all time in vain. What is not used is kept for
// later, up to `kept` times `once`: a single miss costs the next spins nothing.
class SpinBudget {
public:
    using Clock = std::chrono::steady_clock;

    static constexpr std::chrono::microseconds once{25};
    static constexpr int rarity = 8;
    static constexpr int kept = 8;

    // How long a spin that begins now may take.
    [[nodiscard]] Clock::duration left(Clock::time_point now) noexcept {
        since_ = std::max<Clock::time_point>(since_, now - kept * rarity * once);
        return std::min<Clock::duration>(once, (now - since_) / rarity);
    }
    // So much was spun for nothing, of what was left.
    void in_vain(Clock::duration spun) noexcept { since_ += rarity * spun; }

private:
    Clock::time_point since_;  // a part of the time from then on is left
};

}  // namespace ddpdiag
