// Infinities and NaN, recognised by their bits; and how much of a bucket is searched for them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ddpdiag {

// Whether none of the values is infinite or NaN, whose exponent is all ones. Collected without a branch, so that a loop
// that sees them stays a vector one.
template <typename Value>
class AllFinite {
public:
    void see(Value value) noexcept {
        found_ |= static_cast<Bits>((std::bit_cast<Bits>(value) & exponent) == exponent);
    }
    [[nodiscard]] bool so_far() const noexcept { return found_ == 0; }

private:
    using Bits = std::conditional_t<sizeof(Value) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;
    static constexpr Bits exponent = std::bit_cast<Bits>(std::numeric_limits<Value>::infinity());
    Bits found_ = 0;
};

// Of so many lines of memory in a row, a power of 2, one is searched: another one in each row and in each pass, by a
// hash, so that no column of a matrix is left out whatever its width. NaN in what a layer takes or passes on fills whole
// rows or columns of its gradients, and a single one is everywhere one step later.
template <typename Value>
[[nodiscard]] bool finite_lines(const Value* values, std::size_t count, std::uint32_t every,
                                std::uint32_t pass) noexcept {
    constexpr std::size_t line = 64 / sizeof(Value);
    constexpr std::uint32_t spread = 0x9e3779b1U;
    const std::size_t rows = every > 1 ? count / (line * every) : 0;
    AllFinite<Value> seen;
    for (std::size_t row = 0; row < rows; ++row) {
        const std::uint32_t mixed = (static_cast<std::uint32_t>(row) ^ (pass * 0x85ebca6bU)) * spread;
        const Value* const from = values + (row * every + (mixed >> 16U) % every) * line;
        for (std::size_t i = 0; i < line; ++i) {
            seen.see(from[i]);
        }
    }
    for (std::size_t i = rows * line * every; i < count; ++i) {
        seen.see(values[i]);
    }
    return seen.so_far();
}

// Which part of the buckets is searched: all of it where that takes no more than `share` of a step.
class SearchedPart {
public:
    static constexpr double share = 0.002;
    static constexpr std::uint32_t least = 16;  // one line of so many

    [[nodiscard]] std::uint32_t every() const noexcept { return every_; }
    [[nodiscard]] std::uint32_t pass() const noexcept { return pass_; }
    // A bucket was searched in a time, nanoseconds.
    void took(std::int64_t ns) noexcept { took_ += ns; }
    void begin_pass(std::int64_t now) noexcept {
        const double step = share * static_cast<double>(now - begun_);
        if (begun_ != 0 && took_ != 0) {  // 0: the other statistics were taken, or all buckets are small
            const double all = static_cast<double>(took_) * every_;
            for (every_ = 1; every_ < least && all > step * every_;) {
                every_ *= 2;
            }
        }
        begun_ = now;
        took_ = 0;
        ++pass_;
    }

private:
    std::int64_t begun_ = 0;
    std::int64_t took_ = 0;
    std::uint32_t every_ = 1;
    std::uint32_t pass_ = 0;
};

}  // namespace ddpdiag
