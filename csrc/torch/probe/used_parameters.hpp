// Which parameters of a module get a gradient.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddpdiag {

// Which parameters get a gradient in the passes of a DDP module that searches for unused ones (find_unused_parameters).
// Off for other modules, which pay one look at a flag. For any thread.
class UsedParameters {
public:
    struct Counts {
        std::uint64_t passes = 0;
        std::uint64_t with_unused = 0;  // of these, passes in which some parameter got no gradient
        std::uint64_t most_unused = 0;
        std::uint64_t changed = 0;  // passes in which other parameters were used than in the first one
        std::vector<std::uint32_t> never_used;
    };

    // Before the first pass.
    void watch(std::size_t parameters) {
        ever_ = std::vector<std::atomic<bool>>(parameters);
        on_.store(parameters > 0, std::memory_order_release);
    }
    void begin_pass() noexcept {
        ready_.store(0, std::memory_order_relaxed);
        which_.store(0, std::memory_order_relaxed);
    }
    void ready(std::uint32_t parameter) noexcept {
        if (on_.load(std::memory_order_acquire) && parameter < ever_.size()) {
            ready_.fetch_add(1, std::memory_order_relaxed);
            // Odd multiples of a large odd number: their sums tell sets of parameters apart, in any order.
            which_.fetch_add((2 * std::uint64_t{parameter} + 1) * 0x9E37'79B9'7F4A'7C15U ^ parameter,
                             std::memory_order_relaxed);
            ever_[parameter].store(true, std::memory_order_relaxed);
        }
    }
    // On the thread that runs the passes.
    void end_pass() noexcept {
        if (!on_.load(std::memory_order_acquire)) {
            return;
        }
        const std::uint64_t ready = ready_.load(std::memory_order_relaxed);
        // A module whose hook the script registers itself has no probes, nor has a compiled graph.
        if (ready == 0) {
            return;
        }
        const std::uint64_t which = which_.load(std::memory_order_relaxed);
        const std::uint64_t unused = ever_.size() - std::min<std::uint64_t>(ready, ever_.size());
        if (passes_.fetch_add(1, std::memory_order_relaxed) == 0) {
            first_ = which;
        }
        with_unused_.fetch_add(unused > 0 ? 1 : 0, std::memory_order_relaxed);
        most_unused_.store(std::max(most_unused_.load(std::memory_order_relaxed), unused),
                           std::memory_order_relaxed);
        changed_.fetch_add(which != first_ ? 1 : 0, std::memory_order_relaxed);
    }
    [[nodiscard]] Counts counts() const {
        Counts found{.passes = passes_.load(std::memory_order_relaxed),
                     .with_unused = with_unused_.load(std::memory_order_relaxed),
                     .most_unused = most_unused_.load(std::memory_order_relaxed),
                     .changed = changed_.load(std::memory_order_relaxed),
                     .never_used = {}};
        for (std::size_t i = 0; i < ever_.size(); ++i) {
            if (!ever_[i].load(std::memory_order_relaxed)) {
                found.never_used.push_back(static_cast<std::uint32_t>(i));
            }
        }
        return found;
    }

private:
    std::vector<std::atomic<bool>> ever_;
    std::atomic<bool> on_{false};
    std::atomic<std::uint64_t> ready_{0};  // in this pass
    std::atomic<std::uint64_t> which_{0};
    std::atomic<std::uint64_t> passes_{0};
    std::atomic<std::uint64_t> with_unused_{0};
    std::atomic<std::uint64_t> most_unused_{0};
    std::atomic<std::uint64_t> changed_{0};
    std::uint64_t first_ = 0;
};

}  // namespace ddpdiag
