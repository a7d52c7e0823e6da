#include "core/kernels/checksum.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "check.hpp"

using ddpdiag::checksum;

namespace {

std::vector<std::uint8_t> bytes_of(std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
    return bytes;
}

}  // namespace

CASE("equal buffers have equal checksums, at any address") {
    auto bytes = bytes_of(1001);
    std::vector<std::uint8_t> shifted(bytes.size() + 1);
    std::ranges::copy(bytes, shifted.begin() + 1);
    CHECK_EQ(checksum(bytes.data(), bytes.size()), checksum(shifted.data() + 1, bytes.size()));
}

CASE("every single flipped bit changes the checksum") {
    for (const std::size_t size : {1U, 7U, 8U, 63U, 64U, 65U, 200U}) {
        auto bytes = bytes_of(size);
        std::set<std::uint64_t> seen{checksum(bytes.data(), size)};
        for (std::size_t bit = 0; bit < 8 * size; ++bit) {
            const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
            bytes[bit / 8] ^= mask;
            CHECK(seen.insert(checksum(bytes.data(), size)).second);
            bytes[bit / 8] ^= mask;
        }
    }
}

CASE("words that change places change the checksum") {
    std::vector<std::uint64_t> words(64);
    std::iota(words.begin(), words.end(), 0);
    const auto before = checksum(words.data(), words.size() * 8);
    for (std::size_t i = 1; i < words.size(); ++i) {
        std::swap(words[0], words[i]);
        CHECK(checksum(words.data(), words.size() * 8) != before);
        std::swap(words[0], words[i]);
    }
}

CASE("zeros of different lengths differ, and nothing is 0") {
    const std::vector<std::uint8_t> zeros(512);
    std::set<std::uint64_t> seen;
    for (std::size_t size = 0; size <= zeros.size(); ++size) {
        const auto value = checksum(zeros.data(), size);
        CHECK(value != 0);
        CHECK(seen.insert(value).second);
    }
}
