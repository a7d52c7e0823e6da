#include "torch/reduce/lanes/lanes.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ddpdiag {
namespace {

// A division that gains less is not worth the second collective: its threads must be woken, on a busy machine too.
// Measured, waking them took up to 1 ms of a gain of 1.8 ms (docs/performance.md).
constexpr std::int64_t worthwhile_percent = 90;
constexpr std::int64_t worthwhile_ns = 2'000'000;
constexpr std::int64_t ps_per_ns = 1000;
constexpr std::int64_t longest_latency_ns = 68'719'476'736;  // 2^36
constexpr std::int64_t slowest_ps_per_byte = 1'073'741'824;  // 2^30

std::int64_t time_ns(const LaneRate& rate, std::uint64_t bytes) {
    // Nanoseconds, and bytes in parts: neither product overflows for buffers up to a terabyte.
    const auto kilobytes = static_cast<std::int64_t>(bytes / ps_per_ns);
    const auto rest = static_cast<std::int64_t>(bytes % ps_per_ns);
    return rate.latency_ns + kilobytes * rate.ps_per_byte + rest * rate.ps_per_byte / ps_per_ns;
}

std::uint64_t bytes_within(const LaneRate& rate, std::int64_t ns) {
    const std::int64_t beyond = ns - rate.latency_ns;
    if (beyond <= 0) {
        return 0;
    }
    return static_cast<std::uint64_t>(beyond / rate.ps_per_byte * ps_per_ns +
                                      beyond % rate.ps_per_byte * ps_per_ns / rate.ps_per_byte);
}

}  // namespace

Lanes::Lanes(std::vector<std::string> names, const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends,
             std::vector<LaneRate> rates, std::uint64_t divides_from)
    : names_(std::move(names)), rates_(std::move(rates)), divides_from_(divides_from) {
    if (backends.empty() || names_.size() != backends.size() || rates_.size() != backends.size()) {
        throw std::invalid_argument("each lane needs a name, a group and a rate.");
    }
    for (const LaneRate& rate : rates_) {
        if (rate.latency_ns < 0 || rate.latency_ns > longest_latency_ns || rate.ps_per_byte < 1 ||
            rate.ps_per_byte > slowest_ps_per_byte) {
            throw std::invalid_argument("the rate of a lane is out of its range.");
        }
    }
    for (const auto& backend : backends) {
        backends_.emplace_back(backend);
    }
    ranks_ = backends.front()->getSize();
}

std::size_t Lanes::best(std::uint64_t bytes) const {
    const auto found =
        std::ranges::min_element(rates_, {}, [&](const LaneRate& rate) { return time_ns(rate, bytes); });
    return static_cast<std::size_t>(found - rates_.begin());
}

std::vector<std::uint64_t> Lanes::ends(std::uint64_t bytes) const {
    const std::size_t alone = best(bytes);
    const std::int64_t alone_ns = time_ns(rates_[alone], bytes);
    // The shortest time within which all lanes together carry the buffer; lanes whose latency is above it carry nothing.
    std::int64_t low = 0;
    std::int64_t high = alone_ns;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        std::uint64_t carried = 0;
        for (const LaneRate& rate : rates_) {
            carried += std::min(bytes_within(rate, middle), bytes);
        }
        if (carried >= bytes) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    std::vector<std::uint64_t> result;
    const bool divided = bytes >= divides_from_ && low < alone_ns / 100 * worthwhile_percent &&
                         low <= alone_ns - worthwhile_ns;
    std::uint64_t carried = 0;
    for (std::size_t lane = 0; lane < rates_.size(); ++lane) {
        if (divided) {
            carried = std::min(bytes, carried + bytes_within(rates_[lane], low));
            result.push_back(carried == bytes ? whole : carried * whole / bytes);
        } else {
            result.push_back(lane < alone ? 0 : whole);
        }
    }
    result.back() = whole;
    return result;
}

c10::intrusive_ptr<c10d::Backend> Lanes::backend(std::size_t lane) const {
    auto backend = backends_[lane].lock();
    if (!backend) {
        throw std::runtime_error("its process group was destroyed");
    }
    return backend;
}

std::string Lanes::description(std::size_t lane) const {
    return "lane " + std::to_string(lane + 1) + " of " + std::to_string(names_.size()) + " (interface " +
           names_[lane] + ")";
}

void Lanes::fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) {
        failure_ = why;
    }
}

void Lanes::require_sound() const {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) {
        throw std::runtime_error("pyddpdiag: an earlier bucket has failed, so no lane is used any more: " +
                                 failure_);
    }
}

}  // namespace ddpdiag
