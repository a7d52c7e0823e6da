// Which ranks' values Gloo's ring all-reduce adds in which order. Its sums of f32 and f64 depend on that from 3 ranks
// on, so whoever wants its bits must follow it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ddpdiag {

// The ring cuts a buffer into one chunk per rank, each of this many bytes, of which the last ones may be shorter
// or empty. Chunk c is summed as ((x[c-1] + x[c-2]) + ...) + x[c], ranks modulo their number.
[[nodiscard]] constexpr std::uint64_t ring_chunk_bytes(std::uint64_t bytes, std::uint64_t value_bytes,
                                                       std::uint64_t ranks) noexcept {
    constexpr std::uint64_t largest = std::uint64_t{1} << 20U;
    const auto divide_up = [](std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; };
    const std::uint64_t segment = value_bytes * std::max<std::uint64_t>(1, largest / value_bytes);
    const std::uint64_t wanted = std::max(divide_up(bytes, segment), 2 * ranks);
    const std::uint64_t segments_each = divide_up(wanted, ranks);
    const std::uint64_t segment_bytes =
        divide_up(divide_up(bytes, segments_each * ranks), value_bytes) * value_bytes;
    return segments_each * segment_bytes;
}

// The rank whose value is the `position`-th that is added to the sum of chunk `chunk`.
[[nodiscard]] constexpr std::size_t ring_addend(std::size_t chunk, std::size_t position,
                                                std::size_t ranks) noexcept {
    return (chunk + 2 * ranks - 1 - position) % ranks;
}

}  // namespace ddpdiag
