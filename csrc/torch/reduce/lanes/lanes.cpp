#include "torch/reduce/lanes/lanes.hpp"

#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "platform/platform.hpp"

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

Lanes::Lanes(std::vector<std::string> names, const std::vector<std::shared_ptr<OwnBackend>>& backends,
             std::vector<LaneRate> rates, bool tried)
    : names_(std::move(names)), rates_(std::move(rates)), tried_(tried), part_ended_(names_.size(), 0) {
    if (backends.empty() || names_.size() != backends.size() || rates_.size() != backends.size()) {
        throw std::invalid_argument("each lane needs a name, a group and a rate.");
    }
    for (const LaneRate& rate : rates_) {
        if (rate.latency_ns < 0 || rate.latency_ns > longest_latency_ns || rate.ps_per_byte < 1 ||
            rate.ps_per_byte > slowest_ps_per_byte) {
            throw std::invalid_argument("the rate of a lane is out of its range.");
        }
    }
    backends_.assign(backends.begin(), backends.end());
    ranks_ = backend(0)->getSize();
}

std::size_t Lanes::best(std::uint64_t bytes) const {
    const auto found =
        std::ranges::min_element(rates_, {}, [&](const LaneRate& rate) { return time_ns(rate, bytes); });
    return static_cast<std::size_t>(found - rates_.begin());
}

LaneShares Lanes::promised(std::uint64_t bytes) const {
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
    if (low >= alone_ns / 100 * worthwhile_percent || low > alone_ns - worthwhile_ns) {
        return LaneShares::alone(alone, rates_.size());
    }
    LaneShares result{.ends = {}};
    std::uint64_t carried = 0;
    for (const LaneRate& rate : rates_) {
        carried = std::min(bytes, carried + bytes_within(rate, low));
        result.ends.push_back(carried == bytes ? LaneShares::whole : carried * LaneShares::whole / bytes);
    }
    result.ends.back() = LaneShares::whole;
    return result;
}

Lanes::Size& Lanes::size_of(std::uint64_t bytes) {
    auto found = sizes_.find(bytes);
    if (found == sizes_.end()) {
        Division division(promised(bytes), best(bytes), tried_);
        found = sizes_.emplace(bytes, Size{.division = std::move(division), .notes = {}, .agreed = {}}).first;
    }
    return found->second;
}

LaneTurn Lanes::next(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    Size& size = size_of(bytes);
    const Division::Turn turn = size.division.next();
    bool divided = turn.divided;
    if (turn.tell || turn.learn) {
        // Unlocked: what Gloo's threads have ended, they note.
        lock.unlock();
        turn.tell ? tell(size) : learn(size);
        lock.lock();
        divided = size.division.divides();
    }
    return {.bytes = bytes, .number = turn.number, .divided = divided, .version = size.division.version()};
}

void Lanes::tell(Size& size) {
    std::size_t lane = 0;
    {
        const std::lock_guard lock(mutex_);
        lane = size.division.best();
        const auto& times = size.division.noted();
        size.notes = at::empty({static_cast<std::int64_t>(times.size())}, at::kLong);
        std::ranges::copy(times, size.notes.mutable_data_ptr<std::int64_t>());
    }
    // No collective of the program, so no probe sees it.
    const at::RecordFunctionGuard no_spans(/*is_enabled=*/false);
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MIN;
    std::vector<at::Tensor> one = {size.notes};
    size.agreed = backend(lane)->allreduce(one, options)->getFuture();
}

void Lanes::learn(Size& size) {
    const auto agreed = std::exchange(size.agreed, {});
    agreed->wait();
    if (agreed->hasError()) {
        const auto why = "the ranks could not agree on a division: " + agreed->tryRetrieveErrorMessage();
        fail(why);
        throw std::runtime_error("pyddpdiag: " + why);
    }
    const std::lock_guard lock(mutex_);
    const auto* times = size.notes.const_data_ptr<std::int64_t>();
    size.division.agreed({times, times + size.notes.numel()});
}

LaneCut Lanes::cut(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const Division& division = size_of(bytes).division;
    return {.shares = division.shares(), .best = division.best(), .version = division.version()};
}

// What came before on the same way counts for that: so the times of several buffers add up to the time they all took.

void Lanes::part_ended(const LaneTurn& turn, std::size_t lane, std::int64_t begun_ns) {
    const std::int64_t now = platform::monotonic_ns();
    const std::lock_guard lock(mutex_);
    const std::int64_t since = std::max(begun_ns, std::exchange(part_ended_[lane], now));
    size_of(turn.bytes).division.took(turn.number, lane, now - since);
}

void Lanes::ended(const LaneTurn& turn, std::int64_t begun_ns) {
    const std::int64_t now = platform::monotonic_ns();
    const std::lock_guard lock(mutex_);
    const std::int64_t since = std::max(begun_ns, std::exchange(ended_ns_, now));
    size_of(turn.bytes).division.took(turn.number, now - since);
}

void Lanes::copied(const LaneTurn& turn, std::int64_t begun_ns) {
    const std::int64_t now = platform::monotonic_ns();
    const std::lock_guard lock(mutex_);
    size_of(turn.bytes).division.took(turn.number, now - begun_ns);
}

LaneShares Lanes::shares(std::optional<std::uint64_t> bytes) const {
    constexpr std::uint64_t usual = std::uint64_t{25} << 20U;
    const std::lock_guard lock(mutex_);
    if (!bytes) {
        bytes = sizes_.empty() ? usual : sizes_.rbegin()->first;
    }
    const auto found = sizes_.find(*bytes);
    if (found == sizes_.end()) {
        return promised(*bytes);
    }
    const Division& division = found->second.division;
    return division.divides() ? division.shares() : LaneShares::alone(division.best(), rates_.size());
}

c10::intrusive_ptr<c10d::Backend> Lanes::backend(std::size_t lane) const {
    auto backend = OwnBackend::of(backends_[lane]);
    if (backend == nullptr) {
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
