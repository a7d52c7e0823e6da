// The first page of a trace file (docs/trace-format.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddpdiag {

inline constexpr char trace_magic[8] = {'D', 'D', 'P', 'T', 'R', 'A', 'C', 'E'};
inline constexpr std::uint16_t trace_major = 1;
inline constexpr std::uint16_t trace_minor = 5;
inline constexpr std::uint32_t byte_order_mark = 0x01020304;
inline constexpr std::size_t header_size = 4096;

// Values of Header::ended.
enum class ProcessEnd : std::uint64_t {
    not_seen = 0,  // it still runs, or was killed
    orderly = 1,
    exception = 2,  // one that nobody caught
};

struct Header {
    char magic[8];
    std::uint16_t major;
    std::uint16_t minor;
    std::uint32_t byte_order;
    std::uint32_t header_bytes;
    std::uint32_t record_bytes;
    std::uint64_t capacity;  // records
    std::uint64_t pid;
    std::uint32_t rank;
    std::uint32_t world_size;
    std::uint8_t run_id[16];    // the same on all ranks of one run
    std::int64_t monotonic_ns;  // taken together with wall_ns when the file was made
    std::int64_t wall_ns;       // since 1970-01-01 UTC
    char clock_name[32];        // CLOCK_MONOTONIC, QueryPerformanceCounter
    char clock_identity[64];    // equal on two ranks = they read the same clock
    std::uint8_t reserved[64];  // zero
    // Live counters, each on its own cache line: every thread of the process adds to them.
    alignas(64) std::uint64_t tickets;      // tickets given out so far
    alignas(64) std::uint64_t overwritten;  // complete records replaced by newer ones
    alignas(64) std::uint64_t skipped;      // tickets not used: their slot was still in flight
    alignas(64) std::uint64_t dropped;      // events lost: no free slot was found
    alignas(64) std::uint64_t closed;       // 1 once the recorder was closed normally
    alignas(64) std::int64_t heartbeat_ns;  // monotonic, the last beat of the recorder's own thread; 0 = none
    alignas(64) std::uint64_t ended;        // ProcessEnd: how the process ended, as far as it came to tell
};

static_assert(offsetof(Header, capacity) == 24);
static_assert(offsetof(Header, run_id) == 48);
static_assert(offsetof(Header, clock_name) == 80);
static_assert(offsetof(Header, tickets) == 256);
static_assert(offsetof(Header, closed) == 512);
static_assert(offsetof(Header, heartbeat_ns) == 576);
static_assert(offsetof(Header, ended) == 640);
static_assert(sizeof(Header) <= header_size);

}  // namespace ddpdiag
