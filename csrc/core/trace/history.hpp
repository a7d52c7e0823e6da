// What a long run keeps of steps whose records the ring has overwritten: one record for each interval of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/trace/step_tally.hpp"
#include "core/trace/trace_file.hpp"

namespace ddpdiag {

// Reads the trace that it writes to, so that nothing is added to the work of those that record. Its records stay in
// flight, and so are never overwritten; before they take more than a small share of the ring, neighbours become one and
// intervals twice as long. Of one thread at a time.
class History {
public:
    // The least number of steps in an interval.
    static constexpr std::uint32_t steps_at_first = 16;

    explicit History(TraceFile& trace);

    // Takes in what was published since the last call; may throw std::bad_alloc.
    void look();

    // Takes in the rest, and lets its records be final. The trace may be closed then.
    void close();

private:
    struct Interval {
        std::uint32_t first = 0;  // its first step by number, whether or not it took place
        std::uint32_t steps = 0;
        std::uint64_t own_steps = 0;  // those whose own time is known
        std::uint32_t longest_step = 0;
        std::int64_t longest = 0;
        std::int64_t between = 0;  // from the end of a step to the begin of the next one
        StepSums sums;
    };
    struct Published {
        Interval interval;
        Operation record;
    };

    void take_in(std::uint64_t ticket, std::vector<std::uint64_t>& still_open);
    void add(const StepSums& step);
    void publish(const Interval& interval);
    void merge_neighbours();
    [[nodiscard]] Record record_of(const Interval& interval) const;
    static void join(Interval& one, const Interval& next);

    TraceFile* trace_;
    std::size_t limit_;
    StepTally tally_;
    std::uint64_t next_ticket_ = 0;
    std::vector<std::uint64_t> open_;  // tickets of records that were in flight
    std::uint32_t length_ = steps_at_first;
    std::int64_t last_end_ = 0;
    Interval current_;
    std::vector<Published> published_;
};

}  // namespace ddpdiag
