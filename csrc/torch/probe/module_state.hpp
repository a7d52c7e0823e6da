// One DDP module, or GradientReducer, as the probes see it. The type of each part says which thread may touch
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/finite.hpp"
#include "torch/probe/gradient_watch.hpp"
#include "torch/probe/module_identity.hpp"
#include "torch/probe/operation_pool.hpp"
#include "torch/probe/used_parameters.hpp"
#include "torch/probe/weights_watch.hpp"

namespace ddpdiag {

class InFlight;
class PlainDdp;

// Marks of the current forward and backward pass; 0 = not seen. For any thread: an accelerator's backward
// runs on a separate thread.
struct PassMarks {
    std::atomic<std::int64_t> forward_begin{0};
    std::atomic<std::int64_t> forward_end{0};
    std::atomic<std::int64_t> backward_begin{0};
    std::atomic<std::int64_t> first_gradient{0};
    std::atomic<bool> armed{false};          // a forward pass ended and its backward has not begun
    std::atomic<bool> synchronising{false};  // this pass will reduce gradients (not under no_sync)
    std::atomic<bool> sampled{false};        // parameter records are written in this pass
    std::atomic<std::uint32_t> begun{0};     // synchronising backward passes: counted at their first bucket
    std::atomic<std::uint32_t> number{0};  // number of the pass that the latest forward pass leads to, from 0
    std::atomic<std::int64_t> waited_ns{0};        // all passes so far: from finalize begin to its end
    std::atomic<std::uint64_t> backward_signs{0};  // grows when a backward pass begins, synchronising or not
};

// For the one thread that runs the hook and then the finalisation, or the GradientReducer's backward pass and
// all_reduce(). A pool hands its objects to the workers; they see nothing else here.
struct HookThread {
    OperationPool operations;
    WatchedPass watched;
    SearchedPart searched;           // for values that are not finite, in passes that are not watched
    bool signal_by_copy = false;     // how Gloo's workers signal starts in this pass (start_signal.hpp)
    bool other_collectives = false;  // than buckets run in its passes (backward_pass.hpp)
    std::int64_t ranks_left = 0;     // in join(), of those that divide the sum; 0: all (hook/uneven.hpp)
    // What is reduced, and by which path: the hooks' own (hook/in_flight.hpp), made with the first bucket.
    std::shared_ptr<InFlight> in_flight;
    // Where DDP has no hook: what observes its own all-reduces (hook/plain_ddp.hpp).
    std::weak_ptr<PlainDdp> plain;
};

// How often gradients that are not finite are noted outside of watched passes. It takes time, and from then on all of
// them may be as bad: the first ones tell who began.
class FaultNotes {
public:
    // False: there were enough.
    [[nodiscard]] bool one_more() noexcept { return noted_.fetch_add(1, std::memory_order_relaxed) < most; }

private:
    static constexpr std::uint64_t most = 64;
    std::atomic<std::uint64_t> noted_{0};
};

struct ModuleState {
    ModuleState(std::uint32_t index, std::shared_ptr<Group> group, const std::vector<at::Tensor>& parameters,
                std::vector<std::string> names, std::weak_ptr<c10d::Reducer> reducer)
        : identity(index, std::move(group), parameters, std::move(names), std::move(reducer)),
          weights(parameters) {}

    ModuleIdentity identity;
    PassMarks marks;
    HookThread hook;
    WeightsWatch weights;       // for the thread of `hook`
    Fingerprints fingerprints;  // for any thread
    FaultNotes faults;          // for any thread
    UsedParameters used;        // for any thread
};

}  // namespace ddpdiag
