// Ranks that share memory, for tests: all in this process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/shared/block.hpp"
#include "core/shared/exchange.hpp"
#include "core/shared/member.hpp"
#include "core/shared/units.hpp"
#include "core/shared/wire.hpp"
#include "platform/platform.hpp"

namespace shared_group {

// Values of float32 in a unit of a bucket of medium size.
inline constexpr std::size_t unit = ddpdiag::unit_bytes / sizeof(float);

// At once, in a thread each.
inline void on_all_ranks(std::size_t ranks, const std::function<void(std::size_t)>& body) {
    std::vector<std::thread> threads;
    threads.reserve(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        threads.emplace_back(body, rank);
    }
    for (auto& thread : threads) {
        thread.join();
    }
}

inline std::vector<std::string> names(std::size_t ranks) {
    std::vector<std::string> result;
    result.reserve(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        result.push_back("rank " + std::to_string(rank));
    }
    return result;
}

// The peers of rank `rank` among members of these names and processes.
inline std::vector<std::optional<ddpdiag::SharedPeer>> peers(const std::vector<std::string>& members,
                                                             const std::vector<std::uint64_t>& processes,
                                                             std::size_t rank) {
    std::vector<std::optional<ddpdiag::SharedPeer>> result;
    for (std::size_t other = 0; other < members.size(); ++other) {
        if (other == rank) {
            result.emplace_back();
        } else {
            result.emplace_back(std::in_place, members[other], processes[other]);
        }
    }
    return result;
}

// `timeouts`: of each rank. `between`: of each, the way to other hosts; empty: there are none.
inline std::vector<std::unique_ptr<ddpdiag::SharedExchange>> in_this_process(
    const std::vector<std::chrono::milliseconds>& timeouts,
    const std::vector<std::shared_ptr<ddpdiag::SharedBetween>>& between = {}) {
    const std::size_t ranks = timeouts.size();
    std::vector<ddpdiag::SharedMember> members(ranks);
    std::vector<std::string> member_names;
    member_names.reserve(ranks);
    for (const auto& member : members) {
        member_names.push_back(member.name());
    }
    const std::vector<std::uint64_t> processes(ranks, ddpdiag::platform::process_id());
    std::vector<std::unique_ptr<ddpdiag::SharedExchange>> result;
    result.reserve(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        result.push_back(std::make_unique<ddpdiag::SharedExchange>(
            std::move(members[rank]), peers(member_names, processes, rank), names(ranks), timeouts[rank],
            between.empty() ? nullptr : between[rank]));
    }
    return result;
}

inline std::vector<std::unique_ptr<ddpdiag::SharedExchange>> in_this_process(
    std::size_t ranks, std::chrono::milliseconds timeout = std::chrono::minutes(2),
    const std::vector<std::shared_ptr<ddpdiag::SharedBetween>>& between = {}) {
    return in_this_process(std::vector(ranks, timeout), between);
}

// The text of the error that completing the next bucket gives; empty if there was none.
inline std::string error_of(ddpdiag::SharedExchange& exchange, const std::function<bool()>& goes_on = {}) {
    try {
        exchange.complete(goes_on);
        return {};
    } catch (const ddpdiag::SharedExchangeError& error) {
        return error.what();
    }
}

// A bucket of f32 in memory of its own.
class Bucket {
public:
    Bucket(ddpdiag::SharedExchange& exchange, std::size_t count)
        : block_(std::make_shared<ddpdiag::SharedBlock>(count * sizeof(float))),
          place_(exchange.enter(block_)),
          count_(count) {}

    [[nodiscard]] float* values() const { return reinterpret_cast<float*>(block_->data()); }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] ddpdiag::SharedBucket turn(std::uint64_t sequence,
                                             std::shared_ptr<ddpdiag::SharedWire> wire = nullptr) const {
        return {.block = block_,
                .place = place_,
                .offset = 0,
                .sequence = sequence,
                .sum = {.element = ddpdiag::Element::f32, .bytes = count_ * sizeof(float), .average = true},
                .wire = std::move(wire)};
    }

private:
    std::shared_ptr<const ddpdiag::SharedBlock> block_;
    std::size_t place_;
    std::size_t count_;
};

// What rank `rank` brings to position `i` of operation `number`, in whole numbers whose sums are exact.
inline float value(std::size_t rank, std::uint64_t number, std::size_t i) {
    return static_cast<float>((rank + 1) * ((i * 7 + number * 13) % 1000));
}

inline void fill(const Bucket& bucket, std::size_t rank, std::uint64_t number) {
    for (std::size_t i = 0; i < bucket.count(); ++i) {
        bucket.values()[i] = value(rank, number, i);
    }
}

// Whether the bucket holds the average of all ranks' values.
inline bool is_averaged(const Bucket& bucket, std::size_t ranks, std::uint64_t number) {
    for (std::size_t i = 0; i < bucket.count(); ++i) {
        // 1 + 2 + ... + n over n, of numbers that the ranks divide first.
        double sum = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            sum += double{value(rank, number, i)} / static_cast<double>(ranks);
        }
        const double error = sum - double{bucket.values()[i]};
        if (error * error > 1e-6 * (1 + sum * sum) * 1e-6) {
            return false;
        }
    }
    return true;
}

}  // namespace shared_group
