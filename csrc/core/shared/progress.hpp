// How the ranks divide the units of an operation among themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "core/shared/layout.hpp"

namespace ddpdiag {

namespace detail {

constexpr std::uint64_t tagged(std::uint64_t number, std::uint64_t count) noexcept {
    return ((number + 1) << 32U) | count;
}

constexpr std::uint64_t count_in(std::uint64_t word, std::uint64_t number) noexcept {
    const bool is_ours = (word ^ tagged(number, 0)) >> 32U == 0;
    return is_ours ? word & 0xffffffffU : 0;
}

// The count before, which was below `limit`. Whoever comes first finds the word of an earlier operation there.
inline std::optional<std::uint64_t> count_up(std::atomic<std::uint64_t>& word, std::uint64_t number,
                                             std::uint64_t limit) noexcept {
    std::uint64_t seen = word.load(std::memory_order_acquire);
    while (true) {
        const std::uint64_t count = count_in(seen, number);
        if (count >= limit) {
            return std::nullopt;
        }
        if (word.compare_exchange_weak(seen, tagged(number, count + 1), std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
            return count;
        }
    }
}

}  // namespace detail

// A unit that nobody else has, while there is one.
[[nodiscard]] inline std::optional<std::uint64_t> claim_unit(Progress& progress, std::uint64_t number,
                                                             std::uint64_t units) noexcept {
    return detail::count_up(progress.claimed, number, units);
}

// True for the last one.
[[nodiscard]] inline bool unit_done(Progress& progress, std::uint64_t number, std::uint64_t units) noexcept {
    const auto before = detail::count_up(progress.done, number, units);
    return before && *before + 1 == units;
}

[[nodiscard]] inline bool all_done(const Progress& progress, std::uint64_t number,
                                   std::uint64_t units) noexcept {
    return detail::count_in(progress.done.load(std::memory_order_acquire), number) >= units;
}

}  // namespace ddpdiag
