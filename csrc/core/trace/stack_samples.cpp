#include "core/trace/stack_samples.hpp"

#include <utility>

namespace ddpdiag {

StackSamples::StackSamples(std::size_t samples, std::size_t stacks)
    : samples_limit_(samples), stacks_limit_(stacks), stacks_(1) {}

void StackSamples::add(std::int64_t at, const StackNumbers& stack, std::int64_t late) {
    if (late > late_ns) {
        missed_ += late;
    }
    if (at_.size() >= samples_limit_) {
        thin();
    }
    at_.push_back(at);
    places_.push_back(place(stack));
}

void StackSamples::spent(std::int64_t cost) {
    ++looks_;
    cost_ += cost;
    if (looks_ < checked) {
        return;
    }
    const double allowed = most_share * static_cast<double>(checked) * static_cast<double>(interval_);
    if (static_cast<double>(cost_) > allowed && interval_ < longest_interval_ns) {
        thin();
    }
    looks_ = 0;
    cost_ = 0;
}

std::size_t StackSamples::place(const StackNumbers& stack) {
    if (const auto found = known_.find(stack); found != known_.end()) {
        return found->second;
    }
    if (stacks_.size() >= stacks_limit_) {
        return 0;
    }
    stacks_.push_back(stack);
    return known_[stack] = stacks_.size() - 1;
}

void StackSamples::thin() {
    const auto at = std::exchange(at_, {});
    const auto places = std::exchange(places_, {});
    const auto stacks = std::exchange(stacks_, std::vector<StackNumbers>(1));
    known_.clear();
    for (std::size_t i = 1; i < at.size(); i += 2) {
        at_.push_back(at[i]);
        places_.push_back(places[i] == 0 ? 0 : place(stacks[places[i]]));
    }
    interval_ *= 2;
}

}  // namespace ddpdiag
