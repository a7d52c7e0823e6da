// A fast checksum of a buffer's bits, to tell whether two ranks hold the same. Not for files: it depends on the
// byte order, and nothing defends it against someone who wants two buffers to collide.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ddpdiag {

namespace detail {

// Odd, so that multiplication loses no bit: the fractional parts of the golden ratio and of the square root of 3.
inline constexpr std::uint64_t checksum_first = 0x9e3779b97f4a7c15ULL;
inline constexpr std::uint64_t checksum_second = 0xbb67ae8584caa73bULL;

// Two multiplications: after only one, a change of the highest bit stays a change of one bit, which a one-bit
// change of the lane's next word could undo.
constexpr std::uint64_t checksum_step(std::uint64_t state, std::uint64_t word) noexcept {
    return std::rotl((state ^ word) * checksum_first, 31) * checksum_second;
}

}  // namespace detail

// Never 0, so that 0 can stand for "not taken". Each step is a bijection of the state, so two buffers that
// differ in one word of a lane and are equal after it always differ in that lane.
[[nodiscard]] inline std::uint64_t checksum(const void* data, std::size_t bytes) noexcept {
    // Independent lanes: one multiplication must not wait for the one before it.
    constexpr std::size_t lanes = 8;
    constexpr std::size_t block = lanes * sizeof(std::uint64_t);
    std::array<std::uint64_t, lanes> state{};
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        state[lane] = bytes + lane;
    }
    const auto* position = static_cast<const std::byte*>(data);
    std::array<std::uint64_t, lanes> words{};
    for (; bytes >= block; bytes -= block, position += block) {
        std::memcpy(words.data(), position, block);
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            state[lane] = detail::checksum_step(state[lane], words[lane]);
        }
    }
    if (bytes > 0) {
        words = {};
        std::memcpy(words.data(), position, bytes);
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            state[lane] = detail::checksum_step(state[lane], words[lane]);
        }
    }
    std::uint64_t result = 0;
    for (const std::uint64_t lane : state) {
        result = detail::checksum_step(result, lane);
    }
    result ^= result >> 32U;
    return result == 0 ? 1 : result;
}

}  // namespace ddpdiag
