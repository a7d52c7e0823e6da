// fused_copy, divided among torch's threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/fused_copy.hpp"

namespace ddpdiag {

// Values below which another thread costs more than it saves: some 10 us of work.
inline constexpr std::int64_t parallel_grain = 32768;

// Returns how many of the scaled values are infinite or NaN.
std::uint64_t copy_in_parallel(const void* source, Element from, void* target, Element to, std::size_t count,
                               double scale);

}  // namespace ddpdiag
