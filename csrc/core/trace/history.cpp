#include "core/trace/history.hpp"

#include <algorithm>
#include <utility>

#include "platform/platform.hpp"

namespace ddpdiag {
namespace {

// Its records take at most this share of the ring, and no more than so many slots.
constexpr std::size_t share_of_ring = 16;
constexpr std::size_t max_intervals = 512;

constexpr std::uint64_t ticket_of(const Record& record) {
    return (record.word >> 2U) - 1;
}

constexpr bool complete(const Record& record) {
    return (record.word & 3U) == static_cast<std::uint64_t>(SlotState::complete);
}

}  // namespace

History::History(TraceFile& trace)
    : trace_(&trace), limit_(std::clamp<std::size_t>(trace.capacity() / share_of_ring, 4, max_intervals)) {}

void History::look() {
    const std::uint64_t tickets = trace_->counters().tickets;
    const std::uint64_t capacity = trace_->capacity();
    std::vector<std::uint64_t> still_open;
    for (const std::uint64_t ticket : std::exchange(open_, {})) {
        take_in(ticket, still_open);
    }
    // What was overwritten since the last look is gone.
    const std::uint64_t oldest = tickets > capacity ? tickets - capacity : 0;
    for (std::uint64_t ticket = std::max(next_ticket_, oldest); ticket < tickets; ++ticket) {
        take_in(ticket, still_open);
    }
    next_ticket_ = tickets;
    open_ = std::move(still_open);
    for (const StepSums& step : tally_.take(false)) {
        add(step);
    }
}

void History::take_in(std::uint64_t ticket, std::vector<std::uint64_t>& still_open) {
    const std::size_t slot = ticket % trace_->capacity();
    const auto record = trace_->read(slot);
    if (!record) {
        still_open.push_back(ticket);  // being written
        return;
    }
    if (ticket_of(*record) < ticket && complete(*record)) {
        still_open.push_back(ticket);  // its writer has not come to claim the slot
        return;
    }
    // Another ticket: this one was left unused, or its record is overwritten.
    if (ticket_of(*record) != ticket || record->kind == static_cast<std::uint16_t>(Kind::history)) {
        return;
    }
    if (complete(*record)) {
        tally_.add(*record);
    } else {
        still_open.push_back(ticket);
    }
}

void History::add(const StepSums& step) {
    const std::uint32_t first = step.step / length_ * length_;
    if (current_.steps > 0 && current_.first != first) {
        publish(std::exchange(current_, {}));
    }
    // Publishing may have made intervals longer.
    Interval one;
    one.first = step.step / length_ * length_;
    one.steps = 1;
    one.own_steps = step.own >= 0 ? 1 : 0;
    one.longest_step = step.step;
    one.longest = step.end - (last_end_ > 0 ? last_end_ : step.begin);
    one.sums = step;
    one.sums.own = std::max<std::int64_t>(0, step.own);
    last_end_ = step.end;
    join(current_, one);
}

void History::join(Interval& one, const Interval& next) {
    if (one.steps == 0) {
        one = next;
        return;
    }
    one.between += next.between + std::max<std::int64_t>(0, next.sums.begin - one.sums.end);
    one.steps += next.steps;
    one.own_steps += next.own_steps;
    if (next.longest > one.longest) {
        one.longest = next.longest;
        one.longest_step = next.longest_step;
    }
    one.sums.end = std::max(one.sums.end, next.sums.end);
    one.sums.own += next.sums.own;
    one.sums.exposed += next.sums.exposed;
    one.sums.data_wait += next.sums.data_wait;
    one.sums.collectives += next.sums.collectives;
    one.sums.thread_cpu += next.sums.thread_cpu;
    one.sums.run_delay += next.sums.run_delay;
    one.sums.bytes += next.sums.bytes;
}

void History::publish(const Interval& interval) {
    if (const Operation record = trace_->open(record_of(interval))) {
        published_.push_back({interval, record});
    }
    if (published_.size() >= limit_) {
        merge_neighbours();
    }
}

void History::merge_neighbours() {
    std::vector<Published> before = std::exchange(published_, {});
    std::vector<Interval> merged;
    do {
        length_ *= 2;
        merged.clear();
        for (const Published& one : before) {
            Interval interval = one.interval;
            interval.first = interval.first / length_ * length_;
            if (!merged.empty() && merged.back().first == interval.first) {
                join(merged.back(), interval);
            } else {
                merged.push_back(interval);
            }
        }
    } while (merged.size() > limit_ / 2);
    for (const Interval& interval : merged) {
        if (const Operation record = trace_->open(record_of(interval))) {
            published_.push_back({interval, record});
        }
    }
    // Only now: whoever reads meanwhile, or after a kill, finds each step at least once.
    for (const Published& one : before) {
        one.record.complete();
    }
}

Record History::record_of(const Interval& interval) const {
    const StepSums& sums = interval.sums;
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::history);
    record.step = interval.first;
    record.index = interval.steps;
    record.module = length_;
    record.thread = interval.longest_step;
    record.group = static_cast<std::uint64_t>(interval.between);
    record.sequence = interval.own_steps;
    record.reference = static_cast<std::uint64_t>(interval.longest);
    record.bytes = sums.bytes;
    record.times[history_value::begin] = sums.begin;
    record.times[history_value::end] = sums.end;
    record.times[history_value::own] = sums.own;
    record.times[history_value::exposed] = sums.exposed;
    record.times[history_value::data_wait] = sums.data_wait;
    record.times[history_value::collectives] = sums.collectives;
    record.times[history_value::thread_cpu] = sums.thread_cpu;
    record.times[history_value::run_delay] = sums.run_delay;
    return record;
}

void History::close() {
    look();
    for (const StepSums& step : tally_.take(true)) {
        add(step);
    }
    if (current_.steps > 0) {
        publish(std::exchange(current_, {}));
    }
    for (const Published& one : std::exchange(published_, {})) {
        one.record.complete();
    }
}

}  // namespace ddpdiag
