// Records whose every field follows from one number, so that a torn copy shows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "check.hpp"
#include "core/trace/record.hpp"
#include "core/trace/trace_file.hpp"

namespace records {

constexpr std::uint64_t mix(std::uint64_t number) {
    number = (number ^ (number >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    number = (number ^ (number >> 27U)) * 0x94d049bb133111ebULL;
    return number ^ (number >> 31U);
}

constexpr std::int64_t time_of(std::uint64_t seed, std::size_t which) {
    return static_cast<std::int64_t>(mix(seed * 31 + which) >> 1U);
}

// `times` first times are filled, the others stay 0.
constexpr ddpdiag::Record from_seed(std::uint64_t seed, std::size_t times = ddpdiag::time_count) {
    ddpdiag::Record record{};
    record.kind = static_cast<std::uint16_t>(ddpdiag::Kind::bucket);
    record.dtype = static_cast<std::uint8_t>(mix(seed + 1));
    record.reduce_op = static_cast<std::uint8_t>(mix(seed + 2));
    record.flags = static_cast<std::uint32_t>(mix(seed + 3));
    record.group = mix(seed + 4);
    record.sequence = seed;
    record.reference = mix(seed + 5);
    record.bytes = mix(seed + 6);
    record.step = static_cast<std::uint32_t>(mix(seed + 7));
    record.module = static_cast<std::uint32_t>(mix(seed + 8));
    record.index = static_cast<std::uint32_t>(mix(seed + 9));
    record.thread = static_cast<std::uint32_t>(mix(seed + 10));
    for (std::size_t which = 0; which < times; ++which) {
        record.times[which] = time_of(seed, which);
    }
    return record;
}

// Every field but the word and the times is what from_seed made of the record's own seed.
constexpr bool same_body(const ddpdiag::Record& seen) {
    const ddpdiag::Record wanted = from_seed(seen.sequence);
    return seen.kind == wanted.kind && seen.dtype == wanted.dtype && seen.reduce_op == wanted.reduce_op &&
           seen.flags == wanted.flags && seen.group == wanted.group && seen.reference == wanted.reference &&
           seen.bytes == wanted.bytes && seen.step == wanted.step && seen.module == wanted.module &&
           seen.index == wanted.index && seen.thread == wanted.thread;
}

// Each time is either not there yet or the one of this record's seed.
constexpr bool same_times(const ddpdiag::Record& seen, bool all_there) {
    for (std::size_t which = 0; which < ddpdiag::time_count; ++which) {
        if (seen.times[which] != time_of(seen.sequence, which) && (all_there || seen.times[which] != 0)) {
            return false;
        }
    }
    return true;
}

constexpr std::uint64_t ticket_of(const ddpdiag::Record& record) {
    return (record.word >> 2U) - 1;
}

constexpr ddpdiag::SlotState state_of(const ddpdiag::Record& record) {
    return static_cast<ddpdiag::SlotState>(record.word & 3U);
}

// The record in slot `index`, which must be there.
inline ddpdiag::Record in_slot(const ddpdiag::TraceFile& trace, std::size_t index) {
    const auto seen = trace.read(index);
    if (!seen) {
        check::end_case(__FILE__, __LINE__, "a record was expected in this slot");
    }
    return *seen;
}

// The smallest ring there is: 512 slots.
inline ddpdiag::TraceOptions small_ring() {
    ddpdiag::TraceOptions options;
    options.capacity_bytes = std::size_t{64} << 10U;
    return options;
}

}  // namespace records
