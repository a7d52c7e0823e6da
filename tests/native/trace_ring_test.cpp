#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/trace/trace_file.hpp"
#include "records.hpp"
#include "scratch.hpp"

namespace {

using ddpdiag::Operation;
using ddpdiag::Record;
using ddpdiag::SlotState;
using ddpdiag::TraceFile;

constexpr std::size_t slots = 512;

void check_counters(const TraceFile& trace, const ddpdiag::TraceCounters& wanted) {
    const auto seen = trace.counters();
    CHECK_EQ(seen.tickets, wanted.tickets);
    CHECK_EQ(seen.overwritten, wanted.overwritten);
    CHECK_EQ(seen.skipped, wanted.skipped);
    CHECK_EQ(seen.dropped, wanted.dropped);
}

std::vector<Operation> fill_with_open_operations(TraceFile& trace) {
    std::vector<Operation> open;
    for (std::uint64_t seed = 0; seed < slots; ++seed) {
        open.push_back(trace.open(records::from_seed(seed, 1)));
        REQUIRE(static_cast<bool>(open.back()));
    }
    return open;
}

}  // namespace

CASE("a ring that is not yet full overwrites nothing") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    for (std::uint64_t seed = 0; seed < slots; ++seed) {
        trace.write(records::from_seed(seed));
    }
    check_counters(trace, {.tickets = slots});
}

CASE("past its size the newest records are kept and the others counted") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const std::uint64_t written = 3 * slots + 100;
    for (std::uint64_t seed = 0; seed < written; ++seed) {
        CHECK(trace.write(records::from_seed(seed)));
    }
    check_counters(trace, {.tickets = written, .overwritten = written - slots});
    for (std::size_t index = 0; index < slots; ++index) {
        const Record seen = records::in_slot(trace, index);
        CHECK(seen.sequence >= written - slots);
        CHECK_EQ(seen.sequence % slots, index);
        CHECK_EQ(records::ticket_of(seen), seen.sequence);
    }
}

CASE("a slot in flight is never taken: newer tickets skip it") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto slow = trace.open(records::from_seed(1'000'000, 1));
    const std::uint64_t written = 4 * slots;
    for (std::uint64_t seed = 0; seed < written; ++seed) {
        CHECK(trace.write(records::from_seed(seed)));
    }
    // 511 free slots: ticket 512 meets the open one, and so does each 512th after it.
    const std::uint64_t skipped = 4;
    check_counters(
        trace, {.tickets = 1 + written + skipped, .overwritten = written - (slots - 1), .skipped = skipped});
    const Record seen = records::in_slot(trace, 0);
    CHECK_EQ(seen.sequence, 1'000'000U);
    CHECK_EQ(records::state_of(seen), SlotState::in_flight);
    CHECK(records::same_body(seen));

    // Completed, it is a record like the others and the next round takes its slot.
    slow.complete();
    for (std::uint64_t seed = 0; seed < slots; ++seed) {
        trace.write(records::from_seed(seed));
    }
    CHECK(records::in_slot(trace, 0).sequence < slots);
    CHECK_EQ(trace.counters().skipped, skipped);
}

CASE("every second slot in flight halves the ring and loses nothing") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    std::vector<Operation> open;
    for (std::uint64_t seed = 0; seed < slots / 2; ++seed) {
        open.push_back(trace.open(records::from_seed(seed, 1)));
        trace.write(records::from_seed(seed));
    }
    for (std::uint64_t seed = 0; seed < slots; ++seed) {
        CHECK(trace.write(records::from_seed(10'000 + seed)));
    }
    check_counters(trace, {.tickets = 3 * slots, .overwritten = slots, .skipped = slots});
    for (std::size_t index = 0; index < slots; index += 2) {
        CHECK_EQ(records::in_slot(trace, index).sequence, index / 2);
        CHECK_EQ(records::state_of(records::in_slot(trace, index)), SlotState::in_flight);
    }
}

CASE("a ring full of operations in flight drops what comes, counts it, and breaks none of them") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto open = fill_with_open_operations(trace);
    CHECK(!trace.write(records::from_seed(1)));
    CHECK(!trace.write(records::from_seed(2)));
    const auto none = trace.open(records::from_seed(3));
    CHECK(!static_cast<bool>(none));
    none.stamp(0, 99);
    none.complete();
    const auto counters = trace.counters();
    CHECK_EQ(counters.dropped, 3U);
    CHECK_EQ(counters.overwritten, 0U);
    CHECK_EQ(counters.tickets, slots + counters.skipped);
    for (std::size_t index = 0; index < slots; ++index) {
        const Record seen = records::in_slot(trace, index);
        CHECK_EQ(seen.sequence, index);
        CHECK_EQ(records::state_of(seen), SlotState::in_flight);
        CHECK_EQ(seen.times[0], records::time_of(index, 0));
    }
}

CASE("one slot set free is found again") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto open = fill_with_open_operations(trace);
    open[300].complete();
    CHECK(trace.write(records::from_seed(5'000)));
    CHECK_EQ(records::in_slot(trace, 300).sequence, 5'000U);
    CHECK_EQ(trace.counters().dropped, 0U);
    CHECK_EQ(trace.counters().overwritten, 1U);
    CHECK_EQ(trace.counters().tickets, slots + 1 + trace.counters().skipped);
    CHECK_EQ(records::ticket_of(records::in_slot(trace, 300)) % slots, 300U);
}

CASE("completing twice, or after the slot has a new owner, does nothing") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto first = trace.open(records::from_seed(1, 1));
    first.complete();
    first.complete();
    CHECK_EQ(records::in_slot(trace, 0).word, (1U << 2U) | 3U);

    for (std::uint64_t seed = 1; seed < slots; ++seed) {
        trace.write(records::from_seed(seed));
    }
    const auto second = trace.open(records::from_seed(2, 1));
    CHECK_EQ(second.ticket(), slots);
    first.complete();
    const Record seen = records::in_slot(trace, 0);
    CHECK_EQ(records::ticket_of(seen), slots);
    CHECK_EQ(records::state_of(seen), SlotState::in_flight);
    // Still protected: a whole round more leaves it alone.
    for (std::uint64_t seed = 0; seed < slots; ++seed) {
        trace.write(records::from_seed(seed));
    }
    CHECK_EQ(records::ticket_of(records::in_slot(trace, 0)), slots);
    second.complete();
    CHECK_EQ(records::state_of(records::in_slot(trace, 0)), SlotState::complete);
}

CASE("the parts of an error keep clear of operations in flight") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto open = fill_with_open_operations(trace);
    open[7].complete();
    open[9].complete();
    trace.write_error(records::from_seed(8), 8, std::string(128, 'e'));
    CHECK_EQ(records::in_slot(trace, 7).kind, static_cast<std::uint16_t>(ddpdiag::Kind::error));
    CHECK_EQ(records::in_slot(trace, 9).kind, static_cast<std::uint16_t>(ddpdiag::Kind::error));
    CHECK_EQ(records::in_slot(trace, 8).sequence, 8U);
    CHECK_EQ(trace.counters().dropped, 0U);
}
