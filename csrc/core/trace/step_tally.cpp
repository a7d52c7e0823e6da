#include "core/trace/step_tally.hpp"

#include <algorithm>
#include <utility>

namespace ddpdiag {
namespace {

// A step's records are complete when the one after the next has ended: buckets may still be consumed beside the next.
constexpr std::uint32_t steps_kept = 2;

}  // namespace

void StepTally::add(const Record& record) {
    const std::int64_t* const times = record.times;
    switch (static_cast<Kind>(record.kind)) {
        case Kind::step: {
            if ((record.flags & (flag_no_batch | flag_abandoned)) != 0) {
                return;
            }
            Step& step = open_[record.step];
            step.wait_begin = times[step_time::wait_begin];
            step.begin = times[step_time::begin];
            step.end = times[step_time::end];
            newest_ = std::max(newest_, record.step);
            return;
        }
        case Kind::backward: {
            if ((record.flags & flag_abandoned) != 0) {
                return;
            }
            Step& step = open_[record.step];
            step.passes.push_back({{times[backward_time::begin], times[backward_time::finalize_end]},
                                   times[backward_time::finalize_begin]});
            newest_ = std::max(newest_, record.step);
            return;
        }
        case Kind::bucket: {
            Step& step = open_[record.step];
            step.bytes += record.bytes;
            step.buckets.push_back({times[bucket_time::enqueued], times[bucket_time::ended]});
            return;
        }
        case Kind::usage: {
            Reading& usage = open_[record.step].usage;
            // A step may have several passes: the last reading counts.
            if (times[usage_value::at] >= usage.at) {
                usage = {record.thread, times[usage_value::at], times[usage_value::thread_cpu],
                         times[usage_value::run_delay]};
            }
            return;
        }
        case Kind::collective:
            if (times[collective_time::started] > 0 &&
                times[collective_time::ended] >= times[collective_time::started]) {
                calls_.push_back({times[collective_time::started], times[collective_time::ended]});
            }
            return;
        case Kind::phase:
            if (times[phase_time::begin] > 0 && times[phase_time::end] >= times[phase_time::begin]) {
                phases_.push_back({times[phase_time::begin], times[phase_time::end]});
            }
            return;
        default:
            return;
    }
}

std::vector<StepSums> StepTally::take(bool all) {
    std::vector<StepSums> taken;
    while (!open_.empty()) {
        const auto first = open_.begin();
        if (!all && first->first + steps_kept > newest_) {
            break;
        }
        const Step step = std::move(first->second);
        const StepSums found = sums(first->first, step);
        open_.erase(first);
        for (const Span& bucket : step.buckets) {
            left_ = std::max(left_, bucket.end);
            finish_ = std::max(finish_, bucket.end);
        }
        for (const Pass& pass : step.passes) {
            finish_ = std::max(finish_, pass.whole.end);
        }
        if (step.usage.at > 0) {
            usage_ = step.usage;
        }
        if (found.end > 0) {
            taken.push_back(found);
        }
        forget_spans();
    }
    return taken;
}

StepSums StepTally::sums(std::uint32_t number, const Step& step) const {
    StepSums found;
    found.step = number;
    found.bytes = step.bytes;
    std::int64_t entered = 0;
    std::int64_t finish = 0;
    for (const Span& bucket : step.buckets) {
        entered = std::max(entered, bucket.begin);
        finish = std::max(finish, bucket.end);
    }
    for (const Pass& pass : step.passes) {
        finish = std::max(finish, pass.whole.end);
    }
    const bool marked = step.wait_begin > 0 && step.end > step.wait_begin;
    found.begin = marked ? step.wait_begin : finish_;
    found.end = marked ? step.end : finish;
    if (step.wait_begin > 0 && step.begin > step.wait_begin) {
        found.data_wait = step.begin - step.wait_begin;
    }
    if (left_ > 0 && entered >= left_) {
        std::vector<Span> others = calls_;
        others.insert(others.end(), phases_.begin(), phases_.end());
        found.own = entered - left_ - covered(std::move(others), {left_, entered});
    }
    found.exposed = exposed(step);
    if (found.begin > 0 && found.end > found.begin) {
        found.collectives =
            std::max<std::int64_t>(0, covered(calls_, {found.begin, found.end}) - beside(step));
    }
    if (step.usage.at > 0 && usage_.at > 0 && step.usage.thread == usage_.thread) {
        if (usage_.cpu >= 0) {
            found.thread_cpu = std::max<std::int64_t>(0, step.usage.cpu - usage_.cpu);
        }
        if (usage_.delay >= 0) {
            found.run_delay = std::max<std::int64_t>(0, step.usage.delay - usage_.delay);
        }
    }
    return found;
}

// What each pass waited for its own buckets after its last gradient.
std::int64_t StepTally::exposed(const Step& step) {
    std::int64_t sum = 0;
    for (const Pass& pass : step.passes) {
        std::int64_t last = 0;
        for (const Span& bucket : step.buckets) {
            if (bucket.begin >= pass.whole.begin && bucket.begin <= pass.whole.end) {
                last = std::max(last, bucket.end);
            }
        }
        if (pass.finalize_begin > 0) {
            sum += std::max<std::int64_t>(0, last - pass.finalize_begin);
        }
    }
    return sum;
}

// Other collectives beside the step's backward passes, which go on meanwhile.
std::int64_t StepTally::beside(const Step& step) const {
    std::int64_t sum = 0;
    for (const Pass& pass : step.passes) {
        if (pass.whole.begin > 0) {
            sum += covered(calls_, pass.whole);
        }
    }
    return sum;
}

// How much of `within` lies in at least one of the spans.
std::int64_t StepTally::covered(std::vector<Span> spans, Span within) {
    std::ranges::sort(spans, {}, &Span::begin);
    std::int64_t sum = 0;
    std::int64_t reached = within.begin;
    for (const Span& span : spans) {
        const std::int64_t begin = std::max(span.begin, reached);
        const std::int64_t end = std::min(span.end, within.end);
        if (end > begin) {
            sum += end - begin;
            reached = end;
        }
    }
    return sum;
}

// Spans that ended before the last all-reduce of the step taken last concern no further step.
void StepTally::forget_spans() {
    const std::int64_t before = left_ > 0 ? std::min(left_, finish_) : finish_;
    const auto past = [before](const Span& span) { return span.end < before; };
    std::erase_if(calls_, past);
    std::erase_if(phases_, past);
}

}  // namespace ddpdiag
