// What a path tells the probes about a bucket, and whom it notifies of what it sees later.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/kernels/fused_copy.hpp"
#include "core/trace/record.hpp"

namespace ddpdiag {

// Who signals the start of a bucket, on the thread that starts on it.
enum class StartFrom : std::uint8_t {
    gloo_worker,  // Gloo's worker, of the one collective that begin() enqueues
    first_span,   // Gloo's workers, of several collectives: the first of them that has a span
    path,         // the path itself, from a worker of its own: it calls Turn::start
};

// Notified when a bucket starts. One that Gloo's workers notify travels to them with the thread-local state.
class StartListener : public c10::DebugInfoBase {
public:
    // False: it was notified before.
    virtual bool started() = 0;
    // The accelerator has made the gradients, of a path that waits for that itself.
    virtual void produced() = 0;
    // Of a path that looks at this rank's gradients while it sums: their statistics, if the turn asks for them, or else
    // only what of them is not finite. Before the bucket is done, and with the average in `buffer`.
    virtual void examined(const at::Tensor& buffer, const GradientStatistics& found) = 0;
};

// Who takes the statistics of the gradients in a watched pass.
enum class StatisticsFrom : std::uint8_t {
    hook,     // whoever runs the hook, in a pass of its own over the gradients
    prepare,  // prepare(), in its own pass
    sum,      // the path's worker, while it sums: it calls StartListener::examined
};

// They hold for every pass in which the path serves the bucket.
struct PathFacts {
    std::string_view name;       // a literal
    std::uint64_t bytes = 0;     // that travel
    Dtype dtype = Dtype::other;  // in which they travel
    std::uint32_t flags = 0;     // of the bucket's record
    // How many collectives of the group a bucket begins; nothing: not known.
    std::optional<std::uint32_t> collectives = 1;
    StartFrom start = StartFrom::gloo_worker;
    double divided_by = 1.0;  // the divisor of the gradients before the path gets them
    StatisticsFrom statistics = StatisticsFrom::hook;
    bool finishes = false;  // collect() and finish() have something to do
};

}  // namespace ddpdiag
