// Several Gloo groups of the same ranks, each over an interface of its own: what they carry at once.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

namespace ddpdiag {

// What all ranks have agreed on for one lane. Whole numbers, so that every machine computes the same parts from them.
struct LaneRate {
    std::int64_t latency_ns = 0;   // of a sum of nothing
    std::int64_t ps_per_byte = 1;  // and for each byte of a buffer beside that
};

// For any thread.
class Lanes {
public:
    // Parts of a buffer are counted in these, so that no product overflows.
    static constexpr std::uint64_t whole = std::uint64_t{1} << 16U;

    // Divides no buffer, however large.
    static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

    // `names`: for errors, as this rank calls them. `divides_from`: bytes; a smaller buffer goes over the best lane.
    // Throws std::invalid_argument: not one name and one rate for each backend, or a rate out of its range.
    Lanes(std::vector<std::string> names, const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends,
          std::vector<LaneRate> rates, std::uint64_t divides_from);

    [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
    [[nodiscard]] std::int64_t ranks() const noexcept { return ranks_; }
    // Where the part of each lane ends, in parts of the whole; the last is the whole. The same on all ranks. One lane
    // has all of a buffer for which a division would gain too little.
    [[nodiscard]] std::vector<std::uint64_t> ends(std::uint64_t bytes) const;
    // Throws std::runtime_error if the lane's group was destroyed.
    [[nodiscard]] c10::intrusive_ptr<c10d::Backend> backend(std::size_t lane) const;

    // "lane 2 of 3 (interface eth1)"
    [[nodiscard]] std::string description(std::size_t lane) const;
    // Ends all lanes: the others still connect the ranks, which would sum different buckets over them. The first
    // reason counts.
    void fail(const std::string& why);
    // Throws std::runtime_error if a bucket has failed before.
    void require_sound() const;

private:
    [[nodiscard]] std::size_t best(std::uint64_t bytes) const;

    std::vector<std::string> names_;
    // Weak: Gloo's threads must end with the training's group, which Python ties them to.
    std::vector<c10::weak_intrusive_ptr<c10d::Backend>> backends_;
    std::vector<LaneRate> rates_;
    std::uint64_t divides_from_;
    std::int64_t ranks_ = 0;
    mutable std::mutex mutex_;
    std::string failure_;  // empty: none
};

}  // namespace ddpdiag
