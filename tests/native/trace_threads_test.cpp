// Many threads on the smallest ring, so that they meet in its slots; every copy a reader gets must be whole.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <set>
#include <thread>
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
constexpr std::uint64_t writers = 4;
constexpr std::uint64_t records_each = 100'000;
constexpr std::size_t open_each = 16;

// Seeds that no two threads share.
constexpr std::uint64_t seed_of(std::uint64_t writer, std::uint64_t number) {
    return (writer << 40U) | number;
}

struct Opened {
    Operation operation;
    std::uint64_t seed;
};

// Nobody but its owner touches a slot in flight.
bool still_ours(const Record& seen, const Opened& opened) {
    return seen.sequence == opened.seed && records::ticket_of(seen) == opened.operation.ticket() &&
           records::state_of(seen) == SlotState::in_flight && records::same_body(seen);
}

void finish(const TraceFile& trace, const Opened& opened) {
    const auto seen = trace.read(opened.operation.ticket() % slots);
    CHECK(seen && still_ours(*seen, opened));
    for (std::size_t which = 1; which < ddpdiag::time_count; ++which) {
        opened.operation.stamp(which, records::time_of(opened.seed, which));
    }
    opened.operation.complete();
}

// Half of the records are written at once; the others are open while the next ones are written.
void write_records(TraceFile& trace, std::uint64_t writer) {
    std::deque<Opened> open;
    for (std::uint64_t number = 0; number < records_each; ++number) {
        const std::uint64_t seed = seed_of(writer, number);
        if (number % 2 == 0) {
            CHECK(trace.write(records::from_seed(seed)));
            continue;
        }
        const auto operation = trace.open(records::from_seed(seed, 1));
        CHECK(static_cast<bool>(operation));
        open.push_back({operation, seed});
        if (open.size() > open_each) {
            finish(trace, open.front());
            open.pop_front();
        }
    }
    for (const auto& opened : open) {
        finish(trace, opened);
    }
}

bool whole(const Record& seen, std::size_t index) {
    return records::ticket_of(seen) % slots == index && records::state_of(seen) != SlotState::writing &&
           records::same_body(seen) &&
           records::same_times(seen, records::state_of(seen) == SlotState::complete);
}

// Reads all slots over and over while `writing`; how many copies it got.
std::uint64_t read_records(const TraceFile& trace, const std::atomic<bool>& writing) {
    std::uint64_t copies = 0;
    std::array<std::uint64_t, slots> last{};
    // A reader that got no core meanwhile reads what the writers have left.
    while (writing.load() || copies == 0) {
        for (std::size_t index = 0; index < slots; ++index) {
            if (const auto seen = trace.read(index)) {
                CHECK(whole(*seen, index));
                CHECK(seen->word >= last.at(index));
                last.at(index) = seen->word;
                ++copies;
            }
        }
    }
    return copies;
}

}  // namespace

CASE("readers get whole records or none while threads write, stamp and complete") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    std::atomic<bool> writing{true};
    const auto read = [&] { return read_records(trace, writing); };
    auto first_reader = std::async(std::launch::async, read);
    auto second_reader = std::async(std::launch::async, read);
    std::vector<std::thread> threads;
    threads.reserve(writers);
    for (std::uint64_t writer = 0; writer < writers; ++writer) {
        threads.emplace_back([&trace, writer] { write_records(trace, writer); });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    writing = false;
    CHECK(first_reader.get() > 0);
    CHECK(second_reader.get() > 0);

    // All is done: every slot holds a finished record, and the counts add up to the ticket.
    std::set<std::uint64_t> seeds;
    for (std::size_t index = 0; index < slots; ++index) {
        const Record seen = records::in_slot(trace, index);
        CHECK(whole(seen, index));
        CHECK_EQ(records::state_of(seen), SlotState::complete);
        seeds.insert(seen.sequence);
    }
    CHECK_EQ(seeds.size(), slots);
    const auto counters = trace.counters();
    CHECK_EQ(counters.dropped, 0U);
    CHECK_EQ(counters.overwritten, writers * records_each - slots);
    CHECK_EQ(counters.tickets, writers * records_each + counters.skipped);
}

CASE("one operation may be stamped by one thread and completed by another") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    constexpr std::uint64_t rounds = 2'000;
    std::atomic<std::uint64_t> handed{0};
    std::atomic<std::uint64_t> taken{0};
    Operation shared;
    std::thread other([&] {
        for (std::uint64_t round = 1; round <= rounds; ++round) {
            while (handed.load(std::memory_order_acquire) != round) {
                std::this_thread::yield();
            }
            shared.stamp(1, static_cast<std::int64_t>(round));
            shared.set_flags(ddpdiag::flag_error);
            shared.complete();
            taken.store(round, std::memory_order_release);
        }
    });
    for (std::uint64_t round = 1; round <= rounds; ++round) {
        Record record = records::from_seed(round, 1);
        record.flags = 0;
        const auto operation = trace.open(record);
        shared = operation;
        handed.store(round, std::memory_order_release);
        while (taken.load(std::memory_order_acquire) != round) {
            std::this_thread::yield();
        }
        const Record seen = records::in_slot(trace, operation.ticket() % slots);
        CHECK_EQ(seen.times[1], static_cast<std::int64_t>(round));
        CHECK_EQ(seen.flags, +ddpdiag::flag_error);
        CHECK_EQ(records::state_of(seen), SlotState::complete);
    }
    other.join();
}

CASE("threads that race to complete one operation leave one complete record") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    for (std::uint64_t round = 0; round < 200; ++round) {
        const auto operation = trace.open(records::from_seed(round));
        std::thread first([&] { operation.complete(); });
        std::thread second([&] { operation.complete(); });
        first.join();
        second.join();
        CHECK_EQ(records::in_slot(trace, operation.ticket() % slots).word,
                 ((operation.ticket() + 1) << 2U) | 3U);
    }
}
