// Tells a bucket's operation when a Gloo worker thread takes it up.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <optional>

#include "torch/bucket_operation.hpp"

namespace ddpdiag {

// While one of these lives, the all-reduce that this thread enqueues carries `operation` to its worker.
//
// Gloo's work keeps the thread-local state of its caller and enters it on the worker just before it runs.
// Two things in that state can tell us so:
//  - the functorch slot: the worker makes its own copy of it, which calls a virtual function of ours. Costs some
//    100 ns. Used where nobody else uses the slot and no profiler listens.
//  - the profiler's own span of the operation, found through the debug-information slot (worker_probe.cpp). Any
//    active span makes torch save and enter the whole thread-local state twice more per operation, which costs
//    5 to 10 us of the two threads: used where the first cannot be, and under a profiler, which wants its span.
class StartSignal {
public:
    // To be asked once per backward pass: a profiler that starts in the middle of one gets the next.
    [[nodiscard]] static bool by_copy_is_possible();

    // Waits, a second at most, until Gloo's workers have let go of the works that carried a signal by copy. A work holds
    // its caller's thread-local state, with Python objects in it: a worker that comes to drop it only while the
    // interpreter ends is killed by Python, and that aborts the process. Not to be called with Python's lock.
    static void wait_for_workers();

    StartSignal(const std::shared_ptr<BucketOperation>& operation, bool by_copy);
    StartSignal(const StartSignal&) = delete;
    StartSignal& operator=(const StartSignal&) = delete;
    ~StartSignal();

private:
    bool by_copy_;
    std::optional<at::RecordFunctionGuard> no_span_;
    std::optional<c10::DebugInfoGuard> by_span_;
};

}  // namespace ddpdiag
