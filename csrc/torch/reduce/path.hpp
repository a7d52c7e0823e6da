// How a bucket is summed over the ranks: the interface of all ways to do it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/kernels/fused_copy.hpp"
#include "torch/group.hpp"
#include "torch/reduce/facts.hpp"

namespace ddpdiag {

// One bucket's turn in one pass.
struct Turn {
    std::uint64_t sequence = 0;  // what all ranks call the bucket
    // To be notified when the path's own worker starts on the bucket, and of what it finds. Set only if the facts
    // say StartFrom::path.
    std::shared_ptr<StartListener> start;
    bool watched =
        false;  // it wants the statistics of this rank's gradients, which the facts say the sum takes
};

// What prepare() saw on its way through the gradients.
struct Prepared {
    std::optional<GradientStatistics> statistics = std::nullopt;  // of the buffer as it is now, if asked for
    std::optional<bool> finite = std::nullopt;  // whether all gradients are; nothing: not known
    double divided_by = 1.0;                    // the buffer now holds the gradients over this
};

// What was begun.
struct Begun {
    c10::intrusive_ptr<c10::ivalue::Future> future;
    c10::intrusive_ptr<c10d::Work> work;  // the same, for a wait with a timeout; nullptr: there is none
};

// The path of one bucket, kept from pass to pass with the memory that it needs. The calls follow in this
// order:
//
//   prepare, begin      on the thread that runs the hook
//   collect, finish     on the thread that has completed what was begun, if the facts say that it finishes
//
// All may throw. A path neither records nor asks whether anybody does; its facts hold what a record needs.
class Path {
public:
    Path(const Path&) = delete;
    Path& operator=(const Path&) = delete;
    virtual ~Path() = default;

    [[nodiscard]] const PathFacts& facts() const noexcept { return facts_; }
    [[nodiscard]] Group& group() const noexcept { return *group_; }
    // False if it was made for another buffer (DDP has rebuilt its buckets) or another group.
    [[nodiscard]] bool serves(const at::Tensor& buffer, const Group& group) const {
        return buffer_._unsafe_get_target() == buffer.unsafeGetTensorImpl() && values_ == buffer.numel() &&
               group_.get() == &group;
    }

    // Turns the gradients into this rank's contribution to the sum. `with_statistics`: also takes those of
    // the averaged gradients, if the facts say that it can.
    virtual Prepared prepare(const at::Tensor& buffer, bool with_statistics) = 0;
    // Starts the sum, in the same order of buckets on all ranks. Its future is done when collect() may run.
    [[nodiscard]] virtual Begun begin(const at::Tensor& buffer, const Turn& turn) = 0;
    // The rest of the work that needs the other ranks. The recorded end of the bucket is when this returns.
    virtual void collect(const at::Tensor& /*buffer*/) {}
    // The rest, which this rank does by itself; after that the buffer holds the average.
    virtual void finish(const at::Tensor& /*buffer*/) {}

protected:
    Path(const at::Tensor& buffer, std::shared_ptr<Group> group, const PathFacts& facts)
        : buffer_(buffer.getIntrusivePtr()),
          values_(buffer.numel()),
          group_(std::move(group)),
          facts_(facts) {}

private:
    // Weak, which also keeps the address from being given to another buffer.
    c10::weak_intrusive_ptr<c10::TensorImpl> buffer_;
    std::int64_t values_;
    std::shared_ptr<Group> group_;
    PathFacts facts_;
};

}  // namespace ddpdiag
