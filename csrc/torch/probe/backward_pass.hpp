// One synchronising backward pass of a module, from its first bucket until DDP has finalised it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "torch/probe/recorder.hpp"
#include "torch/probe/worker_probe.hpp"

namespace ddpdiag {

// The worker probe is silent in most passes. It listens in the first two, in every 16th, and in all passes of
// a module once a foreign collective was seen in one: the statistics of a synchronised batch normalisation,
// another module's gradients. A collective that the probe did not see shows as a gap in the group's sequence
// number, and from then on the probe listens.
class BackwardPass {
public:
    // `number` counts the module's passes from 0; `needs_probe`: the starts of buckets come from spans.
    BackwardPass(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module, const Group& group,
                 std::uint32_t number, const Operation& operation, bool needs_probe);

    BackwardPass(const BackwardPass&) = delete;
    BackwardPass& operator=(const BackwardPass&) = delete;
    // Closes the record of a pass that failed, as abandoned.
    ~BackwardPass();

    void finalize_begin();
    // May throw what the comparison with the other ranks throws.
    void finalize_end();

private:
    // The group's foreign collectives so far; nothing if the group is gone.
    [[nodiscard]] std::optional<std::uint64_t> others_of_group() const;

    std::uint32_t number_;
    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<ModuleState> module_;
    const Group* group_;  // the recorder's
    Operation operation_;
    std::optional<std::uint64_t> others_of_group_before_;
    std::uint64_t others_before_;
    std::int64_t finalize_begin_ns_ = 0;
    bool ended_ = false;
    // Ends with the pass, and with the pass's callbacks when it failed.
    std::optional<WorkerProbePause> pause_;
};

}  // namespace ddpdiag
