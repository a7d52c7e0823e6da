#include "core/trace/stack_samples.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ddpdiag {

StackSamples::StackSamples(std::size_t samples, std::size_t stacks, std::int64_t spare)
    : samples_limit_(samples), stacks_limit_(stacks), spare_(static_cast<double>(spare)), stacks_(1) {}

void StackSamples::add(std::int64_t at, const StackNumbers& stack, std::int64_t late) {
    if (late > late_ns) {
        missed_ += late;
    }
    if (at_.size() >= samples_limit_) {
        thin(2.0);
    }
    at_.push_back(at);
    places_.push_back(place(stack));
}

void StackSamples::spent(std::int64_t cost) {
    if (++looks_ <= 0) {
        return;
    }
    cost_ += cost;
    if (looks_ < until_) {
        return;
    }
    const auto interval = static_cast<double>(interval_);
    const double took = static_cast<double>(looks_) * interval;
    const double share = static_cast<double>(cost_) / took;
    until_ = checked;
    if (share > most_share && spare_ > 0) {
        spare_ -= (share - most_share) * took;
        until_ = first_checked;
    } else if (share > most_share && interval_ < longest_interval_ns) {
        const double wanted = share / aimed_share;
        until_ = wanted > most_times ? first_checked : checked;
        thin(std::min({wanted, most_times, static_cast<double>(longest_interval_ns) / interval}));
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

void StackSamples::thin(double times) {
    const auto at = std::exchange(at_, {});
    const auto places = std::exchange(places_, {});
    const auto stacks = std::exchange(stacks_, std::vector<StackNumbers>(1));
    known_.clear();
    for (std::size_t i = 0; i < at.size(); ++i) {
        const auto stays = [times](std::size_t samples) {
            return std::floor(static_cast<double>(samples) / times);
        };
        if (stays(i + 1) > stays(i)) {
            at_.push_back(at[i]);
            places_.push_back(places[i] == 0 ? 0 : place(stacks[places[i]]));
        }
    }
    interval_ = std::llround(static_cast<double>(interval_) * times);
}

}  // namespace ddpdiag
