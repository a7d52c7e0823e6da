// What is kept of looks at a stack: a bounded table, however long the run is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ddpdiag {

// A stack in numbers; what they mean is known to whoever takes it.
using StackNumbers = std::vector<std::int64_t>;

// When the table is full, every second sample goes, and the looks come half as often; where they cost too much, as many
// go and they come so much less often as that takes. So all samples of a run stand for equally long times. Stacks that
// no sample needs any more go, too.
class StackSamples {
public:
    static constexpr std::int64_t first_interval_ns = 50'000'000;
    // Because of their cost, looks never come less often than this: on a busy machine, each of them seems costly.
    static constexpr std::int64_t longest_interval_ns = 8 * first_interval_ns;
    // A look this much later than it was due was held up.
    static constexpr std::int64_t late_ns = 20'000'000;
    // Looks before the first check of their cost, so soon that a costly start is over soon, and between two later ones.
    static constexpr std::int64_t first_checked = 20;
    static constexpr std::int64_t checked = 100;
    // The share of a core that they may take, and the one that they are brought to if they take more. The first looks
    // cost more, as they come to know the script's functions.
    static constexpr double most_share = 0.002;
    static constexpr double aimed_share = 0.0018;
    static constexpr std::int64_t first_looks = 5;
    // What they may take beside that, nanoseconds of processor time: as much as in a run of a minute. A shorter one needs
    // as many looks to name a line.
    static constexpr std::int64_t spare_ns = 120'000'000;
    // One check slows them down by this at most, and the next one is soon. On a busy machine each look costs a multiple;
    // a short run there would otherwise keep too few to name a line.
    static constexpr double most_times = 2.0;

    // `samples` and `stacks`: how many there are at most. The first stack stands for all that found no room.
    StackSamples(std::size_t samples, std::size_t stacks, std::int64_t spare = spare_ns);

    // `late`: how long after it was due, nanoseconds.
    void add(std::int64_t at, const StackNumbers& stack, std::int64_t late);
    // What a look cost: processor time, nanoseconds.
    void spent(std::int64_t cost);

    [[nodiscard]] std::int64_t interval() const { return interval_; }
    // For how long looks were held up, nanoseconds.
    [[nodiscard]] std::int64_t missed() const { return missed_; }
    [[nodiscard]] const std::vector<std::int64_t>& at() const { return at_; }
    // For each sample its place in `stacks`.
    [[nodiscard]] const std::vector<std::size_t>& places() const { return places_; }
    [[nodiscard]] const std::vector<StackNumbers>& stacks() const { return stacks_; }

private:
    [[nodiscard]] std::size_t place(const StackNumbers& stack);
    // One of `times` samples stays.
    void thin(double times);

    std::size_t samples_limit_;
    std::size_t stacks_limit_;
    std::int64_t interval_ = first_interval_ns;
    std::int64_t missed_ = 0;
    std::int64_t looks_ = -first_looks;
    std::int64_t until_ = first_checked - first_looks;
    std::int64_t cost_ = 0;
    double spare_;
    std::vector<std::int64_t> at_;
    std::vector<std::size_t> places_;
    std::vector<StackNumbers> stacks_;
    std::map<StackNumbers, std::size_t> known_;
};

}  // namespace ddpdiag
