// What the records of a step add up to, in the terms of the report's tables (docs/metrics.md).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/trace/record.hpp"

namespace ddpdiag {

// One step of this rank; nanoseconds, `begin` and `end` monotonic.
struct StepSums {
    std::uint32_t step = 0;
    std::int64_t begin = 0;  // asked for data; without marks of the loop, the end of the step before
    std::int64_t end = 0;    // of the loop's body; without marks, when the last pass was over
    std::int64_t own = -1;   // from the last all-reduce of the step before to this one's last; -1 = not known
    std::int64_t exposed = 0;      // waited for buckets after backward
    std::int64_t data_wait = 0;    // waited for data
    std::int64_t collectives = 0;  // in other collectives, outside of backward passes
    std::int64_t thread_cpu = 0;   // of the thread that runs backward
    std::int64_t run_delay = 0;    // that thread waited for a core
    std::uint64_t bytes = 0;       // of its buckets
};

// Takes complete records in any order of neighbouring steps, and gives the sums of steps that are over.
class StepTally {
public:
    void add(const Record& record);

    // The steps, in order, that no further record can concern: `all` takes every step that has an end.
    std::vector<StepSums> take(bool all);

private:
    struct Span {
        std::int64_t begin;
        std::int64_t end;
    };
    struct Pass {
        Span whole;
        std::int64_t finalize_begin;
    };
    struct Reading {
        std::uint32_t thread = 0;
        std::int64_t at = 0;
        std::int64_t cpu = -1;
        std::int64_t delay = -1;
    };
    struct Step {
        std::int64_t wait_begin = 0;
        std::int64_t begin = 0;
        std::int64_t end = 0;
        std::uint64_t bytes = 0;
        std::vector<Span> buckets;  // enqueued and ended
        std::vector<Pass> passes;
        Reading usage;
    };

    [[nodiscard]] StepSums sums(std::uint32_t number, const Step& step) const;
    [[nodiscard]] static std::int64_t exposed(const Step& step);
    [[nodiscard]] static std::int64_t covered(std::vector<Span> spans, Span within);
    [[nodiscard]] std::int64_t beside(const Step& step) const;
    void forget_spans();

    std::map<std::uint32_t, Step> open_;
    std::vector<Span> calls_;
    std::vector<Span> phases_;
    std::uint32_t newest_ = 0;
    // Of the step that was taken last.
    std::int64_t left_ = 0;
    std::int64_t finish_ = 0;
    Reading usage_;
};

}  // namespace ddpdiag
