// FNV-1a, 64 bit: the names in records (http://www.isthe.com/chongo/tech/comp/fnv/).
#pragma once

#include <cstdint>
#include <string_view>

namespace ddpdiag {

class Fnv1a {
public:
    constexpr Fnv1a& add(std::string_view text) {
        for (const char c : text) {
            mix(static_cast<std::uint8_t>(c));
        }
        return *this;
    }
    constexpr Fnv1a& add(std::uint32_t number) {
        for (unsigned shift = 0; shift < 32; shift += 8) {
            mix(static_cast<std::uint8_t>(number >> shift));
        }
        return *this;
    }
    [[nodiscard]] constexpr std::uint64_t value() const { return hash_; }

private:
    constexpr void mix(std::uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) {
    return Fnv1a{}.add(text).value();
}

}  // namespace ddpdiag
