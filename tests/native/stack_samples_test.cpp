#include "core/trace/stack_samples.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <ranges>

#include "check.hpp"

namespace {

using ddpdiag::StackNumbers;
using ddpdiag::StackSamples;

constexpr std::int64_t ms = 1'000'000;

StackNumbers at_line(std::int64_t line) {
    return {0, 0, 4711, line, -1};
}

std::int64_t line_of(const StackSamples& samples, std::size_t sample) {
    return samples.stacks()[samples.places()[sample]].at(3);
}

void looks(StackSamples& samples, int times, std::int64_t cost) {
    for (int i = 0; i < times; ++i) {
        samples.add(i * ms, at_line(1), 0);
        samples.spent(cost);
    }
}

CASE("a long run keeps few samples of all of it") {
    StackSamples samples(64, 1024);
    constexpr std::int64_t hour = 3'600'000 * ms;
    int looks = 0;
    for (std::int64_t at = samples.interval(); at < hour; at += samples.interval()) {
        samples.add(at, at_line(4 * at / hour), 0);
        ++looks;
    }
    CHECK(looks < 1000);
    CHECK(samples.at().size() >= 32 && samples.at().size() <= 64);
    CHECK(samples.places().size() == samples.at().size());
    CHECK(samples.interval() == 2048 * StackSamples::first_interval_ns);
    std::map<std::int64_t, int> seen;
    for (std::size_t i = 0; i < samples.at().size(); ++i) {
        ++seen[line_of(samples, i)];
        CHECK(i == 0 || samples.at()[i] - samples.at()[i - 1] >= samples.interval() / 2);
    }
    CHECK(seen.size() == 4);
    const auto [least, most] = std::ranges::minmax(seen | std::views::values);
    CHECK(most - least <= 3);
}

CASE("a short run may spend what a longer one may") {
    StackSamples samples(2048, 1024);
    const auto look = [&samples](int times) { looks(samples, times, 500'000); };
    // Each costs 0.4 ms more than 0.2% of a core: 300 of them.
    look(300);
    CHECK(samples.interval() == 50 * ms && samples.at().size() == 300);
    look(40);
    CHECK(samples.interval() == 100 * ms);
}

CASE("looks that cost too much come less often") {
    StackSamples samples(2048, 1024, 0);
    const auto look = [&samples](int times, std::int64_t cost) { looks(samples, times, cost); };
    // The first ones come to know the functions.
    look(5, 5 * ms);
    // 0.18% of a core.
    look(115, 90'000);
    CHECK(samples.interval() == 50 * ms && samples.at().size() == 120);
    // 0.36%, so that they come half as often, and cost 0.18% again.
    look(500, 180'000);
    CHECK(samples.interval() == 100 * ms && samples.at().size() == 110 + 400);
    // 0.225%: a quarter more, and of those samples one in five goes.
    look(100, 225'000);
    CHECK(samples.interval() == 125 * ms && samples.at().size() == 488);
    look(1000, 225'000);
    CHECK(samples.interval() == 125 * ms);
    for (int i = 0; i < 10'000; ++i) {
        samples.spent(900 * ms);
    }
    CHECK(samples.interval() == StackSamples::longest_interval_ns);
}

CASE("a costly start is over after some looks") {
    StackSamples samples(2048, 1024, 0);
    for (int i = 0; i < 20; ++i) {
        CHECK(samples.interval() == 50 * ms);
        samples.add(i * ms, at_line(1), 0);
        samples.spent(135'000);
    }
    CHECK(samples.interval() == 75 * ms);
    CHECK(samples.at().size() == 13);
}

CASE("on a busy machine they slow down by half at a time") {
    StackSamples samples(2048, 1024, 0);
    const auto look = [&samples](int times) { looks(samples, times, 500'000); };
    // 1% of a core, 0.5%, and 0.25%.
    look(20);
    CHECK(samples.interval() == 100 * ms && samples.at().size() == 10);
    look(20);
    CHECK(samples.interval() == 200 * ms && samples.at().size() == 15);
    look(20);
    CHECK(samples.interval() > 275 * ms && samples.interval() < 280 * ms);
    look(100);
    CHECK(samples.interval() < 280 * ms);
}

CASE("stacks are bounded and make room for later ones") {
    StackSamples samples(100, 10);
    for (int i = 0; i < 100; ++i) {
        samples.add(i * ms, at_line(i), 0);
    }
    CHECK(samples.stacks().size() == 10);
    CHECK(samples.stacks().front().empty());
    // There is no room for the stack of the others, but for the samples.
    CHECK(std::ranges::count(samples.places(), 0U) == 100 - 9);
    for (int i = 100; i < 1000; ++i) {
        samples.add(i * ms, at_line(7777), 0);
    }
    CHECK(line_of(samples, samples.at().size() - 1) == 7777);
    CHECK(samples.stacks().size() <= 10);
}

CASE("equal stacks are one and each sample keeps its own when half of them go") {
    StackSamples samples(4, 1024);
    for (const int line : {1, 2, 3, 2, 5}) {
        samples.add(line * ms, at_line(line), 0);
    }
    CHECK(samples.at().size() == 3);
    CHECK(line_of(samples, 0) == 2 && line_of(samples, 1) == 2 && line_of(samples, 2) == 5);
    CHECK(samples.places()[0] == samples.places()[1]);
    CHECK(samples.stacks().size() == 3);
}

CASE("a look that was held up is counted as missed") {
    StackSamples samples(2048, 1024);
    for (const int late : {0, 5, 400, 30}) {
        samples.add(ms, at_line(1), late * ms);
    }
    CHECK(samples.missed() == 430 * ms);
    CHECK(samples.at().size() == 4);
}

}  // namespace
