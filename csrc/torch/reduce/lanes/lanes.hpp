// Several Gloo groups of the same ranks, each over an interface of its own: what they carry at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/lanes/division.hpp"
#include "torch/own_backend.hpp"

namespace ddpdiag {

// What all ranks have agreed on for one lane. Whole numbers, so that every machine computes the same parts from them.
struct LaneRate {
    std::int64_t latency_ns = 0;   // of a sum of nothing
    std::int64_t ps_per_byte = 1;  // and for each byte of a buffer beside that
};

// How buffers of one size are divided now, the same on all ranks.
struct LaneCut {
    LaneShares shares;
    std::size_t best = 0;       // the lane of those that go whole
    std::uint64_t version = 0;  // another one: `shares` and `best` have changed
};

// One buffer's turn.
struct LaneTurn {
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;  // among those of this size
    bool divided = false;
    std::uint64_t version = 0;
};

// For any thread; next() for one after the other.
class Lanes {
public:
    // `names`: for errors, as this rank calls them. `tried`: false: the rates are right, and what they promise is not
    // tried. Throws std::invalid_argument: not one name and one rate for each backend, or a rate out of its range.
    Lanes(std::vector<std::string> names, const std::vector<std::shared_ptr<OwnBackend>>& backends,
          std::vector<LaneRate> rates, bool tried);

    [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
    [[nodiscard]] std::int64_t ranks() const noexcept { return ranks_; }
    // Of the next buffer, in the same order on all ranks. Now and then it waits for what they have agreed on, of which
    // each rank has noted its part some buffers earlier. Throws std::runtime_error if that failed.
    [[nodiscard]] LaneTurn next(std::uint64_t bytes);
    [[nodiscard]] LaneCut cut(std::uint64_t bytes);
    // The summing of a part, of all of a buffer, and of what was copied for that, which were begun at this time.
    void part_ended(const LaneTurn& turn, std::size_t lane, std::int64_t begun_ns);
    void ended(const LaneTurn& turn, std::int64_t begun_ns);
    void copied(const LaneTurn& turn, std::int64_t begun_ns);
    // How a buffer of so many bytes would go now, outside a trial. Nothing: the largest one so far, or of 25 MiB, DDP's
    // default.
    [[nodiscard]] LaneShares shares(std::optional<std::uint64_t> bytes) const;
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
    struct Size {
        Division division;
        at::Tensor notes;
        // Not its work, which would keep Gloo's threads alive.
        c10::intrusive_ptr<c10::ivalue::Future> agreed;
    };

    [[nodiscard]] std::size_t best(std::uint64_t bytes) const;
    // What the rates promise. One lane has all of a buffer for which a division would gain too little.
    [[nodiscard]] LaneShares promised(std::uint64_t bytes) const;
    [[nodiscard]] Size& size_of(std::uint64_t bytes);
    void tell(Size& size);
    void learn(Size& size);

    std::vector<std::string> names_;
    std::vector<std::weak_ptr<OwnBackend>> backends_;
    std::vector<LaneRate> rates_;
    bool tried_;
    std::int64_t ranks_ = 0;
    mutable std::mutex mutex_;
    std::map<std::uint64_t, Size> sizes_;   // by bytes
    std::int64_t ended_ns_ = 0;             // the last buffer
    std::vector<std::int64_t> part_ended_;  // the last part of each lane
    std::string failure_;                   // empty: none
};

}  // namespace ddpdiag
