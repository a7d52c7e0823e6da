// What a rank shows to the others of its group, in memory that all of them share (core/shared/exchange.hpp).
// Everything is atomic: others read it while it changes. Everything may be nonsense: others may write to it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/shared_memory.hpp"

namespace ddpdiag {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

inline constexpr std::uint64_t shared_magic = 0x3464657261687364;  // "dshared4"
inline constexpr std::size_t most_shared_ranks = 64;
// As many operations may be under way; a rank that is further ahead waits before it announces more.
inline constexpr std::size_t shared_operations = 256;
// As many buckets of a rank may be alive.
inline constexpr std::size_t shared_places = 2048;

// Operation N of the group, counted from 0, as one rank brings it.
struct alignas(64) Announcement {
    // N + 1 while the rest is that of operation N; 0 while it changes.
    std::atomic<std::uint64_t> tag;
    std::atomic<std::uint64_t> sequence;  // of the bucket in its group
    std::atomic<std::uint64_t> bytes;
    std::atomic<std::uint64_t> kind;    // see kind_of()
    std::atomic<std::uint64_t> offset;  // of the bucket's first byte in its memory
    std::atomic<std::uint64_t> place;   // of its memory in `places`
    std::atomic<std::uint64_t> id;      // of its memory
    std::atomic<std::uint64_t> memory_bytes;
    std::array<std::atomic<std::uint64_t>, 8> name;  // of its memory, filled up with zeros
    std::atomic<std::uint64_t> watched;              // not 0: whoever sums it takes all its statistics
    // What those who sum the bucket find in it (GradientStatistics); complete when the operation is done.
    std::atomic<std::uint64_t> not_finite;
    std::atomic<std::uint64_t> first_not_finite;
    // Of a watched bucket, the bits of a double each.
    std::atomic<std::uint64_t> sum_squares;
    std::atomic<std::uint64_t> absolute_maximum;
};

// How far an operation is. Only that of rank 0 is used.
struct alignas(64) Progress {
    // Each N + 1 in the upper half, whose lower bits suffice; and how many units are claimed, or done.
    std::atomic<std::uint64_t> claimed;
    alignas(64) std::atomic<std::uint64_t> done;
};

// One that has left has completed all that it has announced; of one that has failed, no bucket may be summed any more.
enum class Standing : std::uint32_t { here = 0, left = 1, failed = 2 };

struct SharedControl {
    std::atomic<std::uint64_t> magic;
    std::array<std::atomic<std::uint64_t>, 2> secret;  // who knows it has read this memory
    std::atomic<Standing> standing;
    std::atomic<std::uint64_t> failure;  // once it has failed, why: see show()
    std::atomic<std::uint64_t> blamed;
    alignas(64) std::atomic<std::uint32_t> rings;  // of its bell
    std::atomic<std::uint32_t> sleeping;           // whether it needs waking
    alignas(64) std::atomic<std::uint64_t> busy;   // the tag of the operation at whose buckets it is; 0: none
    std::atomic<std::uint64_t> handed_out;         // with several hosts: of so many operations, its part
    std::array<Announcement, shared_operations> announcements;
    std::array<Progress, shared_operations> progress;
    // The ids of the memories that still hold a bucket; 0: none.
    std::array<std::atomic<std::uint64_t>, shared_places> places;
};

// Before a bucket's bytes in its memory.
struct alignas(64) BlockHeader {
    std::atomic<std::uint64_t> magic;
    std::atomic<std::uint64_t> id;
};

static_assert(platform::SharedMemory::longest_name < sizeof(Announcement::name));

}  // namespace ddpdiag
