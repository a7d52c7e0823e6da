// What the hooks keep for one module from pass to pass: each bucket's path, and what its end needs.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "torch/idle.hpp"
#include "torch/probe/bucket_operation.hpp"
#include "torch/reduce/choose_path.hpp"
#include "torch/reduce/path.hpp"

namespace ddpdiag {

// One bucket from what its path has begun to the result that DDP takes. Reused from pass to pass, so that no
// thread frees what another allocated; and on cache lines of its own, as a BucketOperation.
struct alignas(64) BucketInFlight {
    std::shared_ptr<Path> path;                  // nullptr: nothing is left to do when its future is done
    std::shared_ptr<BucketOperation> operation;  // nullptr: the recorder is paused
    at::Tensor buffer;  // undefined: another hook's result, in a form that only that hook knows
    c10::intrusive_ptr<c10::ivalue::Future> averaged;  // nullptr: the caller waits for what was begun
    c10::IValue result;                                // of `averaged`
    std::shared_ptr<BucketInFlight> self;              // while in flight: the callback's own reference
};

// By bucket index. For the thread that runs the hook; the worker owns a bucket in flight.
class InFlight {
public:
    // For callers that decide with bucket 0 on its whole pass.
    void begin_pass(const PathOptions& options) { pass_options_ = options; }
    [[nodiscard]] const PathOptions& pass_options() const noexcept { return pass_options_; }
    // The bucket's path: that of the last pass, if it still fits.
    [[nodiscard]] const std::shared_ptr<Path>& path(std::size_t index, const at::Tensor& buffer,
                                                    const std::shared_ptr<Group>& group,
                                                    const PathOptions& options);
    // One that is not in flight.
    [[nodiscard]] const std::shared_ptr<BucketInFlight>& take(std::size_t index) {
        return idle(slot(index).held);
    }

private:
    struct Slot {
        PathOptions options;
        std::shared_ptr<Path> path;
        std::shared_ptr<BucketInFlight> held;
    };
    [[nodiscard]] Slot& slot(std::size_t index) {
        if (index >= slots_.size()) {
            slots_.resize(index + 1);
        }
        return slots_[index];
    }

    PathOptions pass_options_;
    std::vector<Slot> slots_;
};

// Those of a module, created at the first call.
[[nodiscard]] InFlight& in_flight_of(ModuleState& module);

}  // namespace ddpdiag
