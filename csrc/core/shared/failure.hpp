// Why a rank brings no further bucket, as it shows to the others of its host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/shared/layout.hpp"

namespace ddpdiag {

enum class FailureCause : std::uint8_t {
    own,       // its own: its module or recorder is gone, or its device failed
    late,      // it has waited for others until the time was over
    given_up,  // it was made to give up while it waited for others
    ended,     // others have ended
    differs,   // others bring another bucket
};
inline constexpr std::uint64_t last_cause = static_cast<std::uint64_t>(FailureCause::differs);

struct SharedFailure {
    FailureCause cause = FailureCause::own;
    // The rank that was the first to fail for this; whoever fails because of it shows the same.
    std::uint64_t origin = most_shared_ranks;  // none yet
    std::uint64_t seconds = 0;                 // late: that it has waited
    std::uint64_t blamed = 0;  // a bit for each rank that is to blame, if it is not the origin
};

// A bit for each rank, as in `blamed`.
[[nodiscard]] std::uint64_t bits_of(const std::vector<std::size_t>& ranks) noexcept;
// For the rank whose failure it is, before it changes its standing.
void show(SharedControl& control, const SharedFailure& failure) noexcept;
// For the others, after that. Never a rank from `ranks` on, whatever is there.
[[nodiscard]] SharedFailure shown(const SharedControl& control, std::size_t rank, std::size_t ranks) noexcept;

}  // namespace ddpdiag
