#include "core/trace/history.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "check.hpp"
#include "records.hpp"
#include "scratch.hpp"

namespace {

using ddpdiag::History;
using ddpdiag::Kind;
using ddpdiag::Record;
using ddpdiag::TraceFile;
namespace value = ddpdiag::history_value;

constexpr std::int64_t step_ns = 1'000'000;

Record of_kind(Kind kind, std::uint32_t step) {
    Record record{};
    record.kind = static_cast<std::uint16_t>(kind);
    record.step = step;
    record.thread = 7;
    return record;
}

// A step of a loop that marks its steps: 100 us for data, a backward pass from 300 to 700, whose bucket is enqueued at
// 650 and ends at 800, another collective of 50 us after it. Nanoseconds in units of a microsecond below.
void write_step(TraceFile& trace, std::uint32_t step, std::int64_t late_us = 0) {
    const std::int64_t begin = step_ns * (step + 1);
    const auto at = [begin](std::int64_t us) { return begin + us * 1000; };
    Record backward = of_kind(Kind::backward, step);
    backward.times[ddpdiag::backward_time::begin] = at(300);
    backward.times[ddpdiag::backward_time::finalize_begin] = at(700);
    backward.times[ddpdiag::backward_time::finalize_end] = at(810);
    Record bucket = of_kind(Kind::bucket, step);
    bucket.bytes = 4096;
    bucket.times[ddpdiag::bucket_time::enqueued] = at(650 + late_us);
    bucket.times[ddpdiag::bucket_time::ended] = at(800);
    trace.write(bucket);
    trace.write(backward);
    Record usage = of_kind(Kind::usage, step);
    usage.times[ddpdiag::usage_value::at] = at(810);
    usage.times[ddpdiag::usage_value::thread_cpu] = 400'000 * std::int64_t{step + 1};
    usage.times[ddpdiag::usage_value::run_delay] = 20'000 * std::int64_t{step + 1};
    trace.write(usage);
    Record call = of_kind(Kind::collective, step);
    call.times[ddpdiag::collective_time::started] = at(820);
    call.times[ddpdiag::collective_time::ended] = at(870);
    trace.write(call);
    Record whole = of_kind(Kind::step, step);
    whole.times[ddpdiag::step_time::wait_begin] = at(0);
    whole.times[ddpdiag::step_time::begin] = at(100);
    whole.times[ddpdiag::step_time::end] = at(900);
    trace.write(whole);
}

// The history records by their first step.
std::multimap<std::uint32_t, Record> kept(const TraceFile& trace) {
    std::multimap<std::uint32_t, Record> found;
    for (std::size_t i = 0; i < trace.capacity(); ++i) {
        if (const auto record = trace.read(i);
            record && record->kind == static_cast<std::uint16_t>(Kind::history)) {
            found.emplace(record->step, *record);
        }
    }
    return found;
}

}  // namespace

CASE("an interval holds the sums of its steps") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    History history(trace);
    for (std::uint32_t step = 0; step < 32; ++step) {
        write_step(trace, step);
    }
    history.look();
    history.close();
    const auto found = kept(trace);
    REQUIRE(found.size() == 2);
    const Record second = found.find(16)->second;
    CHECK_EQ(second.index, 16U);
    CHECK_EQ(second.module, History::steps_at_first);
    CHECK_EQ(second.sequence, 16U);
    CHECK_EQ(second.bytes, 16U * 4096U);
    CHECK_EQ(second.group, 15U * 100'000U);
    CHECK_EQ(second.times[value::begin], step_ns * 17);
    CHECK_EQ(second.times[value::end], step_ns * 32 + 900'000);
    // From 800 us to the next 650, without the collective of 50.
    CHECK_EQ(second.times[value::own], 16 * 800'000);
    CHECK_EQ(second.times[value::exposed], 16 * 100'000);
    CHECK_EQ(second.times[value::data_wait], 16 * 100'000);
    CHECK_EQ(second.times[value::collectives], 16 * 50'000);
    CHECK_EQ(second.times[value::thread_cpu], 16 * 400'000);
    CHECK_EQ(second.times[value::run_delay], 16 * 20'000);
    // Of the first step nobody knows what the rank did before it.
    CHECK_EQ(found.find(0)->second.sequence, 15U);
}

CASE("the longest step is kept by its number") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    History history(trace);
    for (std::uint32_t step = 0; step < 16; ++step) {
        write_step(trace, step < 9 ? step : step + 5);
    }
    history.close();
    // Steps 9 to 13 are missing, as if they had not been recorded: the next one ends much later.
    const auto found = kept(trace);
    CHECK_EQ(found.find(0)->second.thread, 14U);
    CHECK_EQ(found.find(0)->second.reference, static_cast<std::uint64_t>(6 * step_ns));
}

CASE("what the ring has overwritten is still there, in few records, and each step once") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    History history(trace);
    constexpr std::uint32_t steps = 20'000;
    for (std::uint32_t step = 0; step < steps; ++step) {
        write_step(trace, step);
        if (step % 20 == 0) {
            history.look();
        }
    }
    history.close();
    const auto found = kept(trace);
    CHECK(found.size() <= trace.capacity() / 16 + 1);
    std::uint64_t counted = 0;
    std::int64_t exposed = 0;
    std::uint32_t length = 0;
    for (const auto& [first, record] : found) {
        length = std::max(length, record.module);
    }
    for (const auto& [first, record] : found) {
        // Records that gave way to longer ones stay until the ring takes their slots.
        if (record.module == length) {
            counted += record.index;
            exposed += record.times[value::exposed];
        }
    }
    CHECK_EQ(counted, steps);
    CHECK_EQ(exposed, std::int64_t{steps} * 100'000);
    CHECK(trace.counters().overwritten > 0);
    CHECK_EQ(trace.counters().dropped, 0U);
}

CASE("a record in flight is taken in when it is complete") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    History history(trace);
    Record bucket = of_kind(Kind::bucket, 0);
    bucket.bytes = 8;
    const ddpdiag::Operation slow = trace.open(bucket);
    history.look();
    slow.complete();
    for (std::uint32_t step = 0; step < 16; ++step) {
        write_step(trace, step);
    }
    history.close();
    CHECK_EQ(kept(trace).find(0)->second.bytes, 16U * 4096U + 8U);
}

CASE("steps that did not take place are in no interval") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    History history(trace);
    Record none = of_kind(Kind::step, 3);
    none.flags = ddpdiag::flag_no_batch;
    none.times[ddpdiag::step_time::end] = 5;
    trace.write(none);
    history.close();
    CHECK(kept(trace).empty());
}
