// Tells a bucket's operation when a Gloo worker thread starts on it.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <optional>

#include "torch/probe/bucket_operation.hpp"
#include "torch/probe/module_state.hpp"
#include "torch/reduce/facts.hpp"

namespace ddpdiag {

// While one of these exists, the collective that this thread enqueues carries `operation` to its worker. It
// does nothing if the path signals the start itself.
//
// Gloo's work keeps the thread-local state of its caller and enters it on the worker just before it runs.
// Two things in that state can tell us that:
//  - the functorch slot: the worker makes its own copy of it, which calls a virtual function of ours. Costs some
//    100 ns. Used where nobody else uses the slot and no profiler listens.
//  - the profiler's own span of the operation, found through the debug-information slot (worker_probe.cpp). Any
//    active span makes torch save and enter the whole thread-local state twice more per operation, which costs
//    5 to 10 us of the two threads: used where the first cannot be, and under a profiler, which wants its span.
class StartSignal {
public:
    // Ask this once per backward pass: a profiler that starts in the middle of one gets the next.
    [[nodiscard]] static bool by_copy_is_possible();

    // Waits, a second at most, until Gloo's workers have released the works that carried a signal by copy. A
    // work holds its caller's thread-local state, with Python objects in it: a worker that drops it only
    // while the interpreter shuts down is killed by Python, and that aborts the process. Do not call this
    // with the GIL held.
    static void wait_for_workers();

    // Whether the worker probe must listen in this pass to see such starts.
    [[nodiscard]] static bool needs_probe(StartFrom from, const HookThread& hook) noexcept {
        return from == StartFrom::first_span || (from == StartFrom::gloo_worker && !hook.signal_by_copy);
    }

    StartSignal(const std::shared_ptr<BucketOperation>& operation, StartFrom from, const HookThread& hook);
    StartSignal(const StartSignal&) = delete;
    StartSignal& operator=(const StartSignal&) = delete;
    ~StartSignal();

private:
    bool by_copy_;
    std::optional<at::RecordFunctionGuard> no_span_;
    std::optional<c10::DebugInfoGuard> by_span_;
};

}  // namespace ddpdiag
