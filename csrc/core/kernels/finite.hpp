// Infinities and NaN, recognised by their bits.
#pragma once

#include <bit>
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

}  // namespace ddpdiag
