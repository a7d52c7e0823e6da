// What a rank says about one bucket before it is summed, written and read in one piece.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/shared/between.hpp"
#include "core/shared/layout.hpp"
#include "core/shared/sum.hpp"
#include "core/shared/wire.hpp"

namespace ddpdiag {

struct Announced {
    std::uint64_t sequence = 0;  // of the bucket in its group
    std::uint64_t bytes = 0;
    std::uint64_t kind = 0;  // see kind_of
    std::uint64_t offset = 0;
    std::uint64_t place = 0;
    std::uint64_t id = 0;
    std::uint64_t memory_bytes = 0;
    std::uint64_t watched = 0;
    std::array<std::uint64_t, 8> name{};

    // Buckets can be added up if they agree in this.
    [[nodiscard]] BucketKey key() const noexcept { return {sequence, bytes, kind}; }
    [[nodiscard]] std::string block_name() const;
};

// A bucket in words.
[[nodiscard]] std::string described(const BucketKey& bucket);

// What is to be done with a bucket, in one number. `wire`: nullptr if it does not travel in 16 bits.
[[nodiscard]] std::uint64_t kind_of(const SharedSum& sum, const SharedWire* wire) noexcept;

void write(Announcement& to, std::uint64_t number, const Announced& from) noexcept;
// Nothing unless it is that of operation `number`, and was while it was read.
[[nodiscard]] std::optional<Announced> read(const Announcement& from, std::uint64_t number) noexcept;

// While the operation's units are summed, by any rank: what was found in some of the values, in any order. The last bits
// of a sum of squares depend on that order.
void add(Announcement& to, const GradientStatistics& found) noexcept;
// When all of them are done, and until the next write().
[[nodiscard]] GradientStatistics found_in(const Announcement& from) noexcept;

}  // namespace ddpdiag
