// One synchronising backward pass of a module, from its first bucket until DDP has finalised it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "torch/recorder.hpp"
#include "torch/worker_probe.hpp"

namespace ddpdiag {

// The worker probe is silent in most passes. It listens in the first two, in every 16th, and in all of a module in
// whose passes there was something else to hear than its buckets: the statistics of a synchronised batch
// normalisation, another module's gradients. A collective that was not heard is missed in the group's sequence
// number, and from then on the probe listens.
class BackwardPass {
public:
    // `number` counts the module's passes from 0; `needs_probe`: a bucket's start is told by its span.
    BackwardPass(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module, const Group& group,
                 std::uint32_t number, const Operation& operation, bool needs_probe);

    void finalize_begin() const;
    // May throw what the comparison with the other ranks throws.
    void finalize_end();

private:
    // Collectives of the group so far that were no buckets of ours; nothing if the group is gone.
    [[nodiscard]] std::optional<std::uint64_t> strangers() const;

    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<ModuleState> module_;
    const Group* group_;  // the recorder's
    Operation operation_;
    std::optional<std::uint64_t> strangers_before_;
    std::uint64_t others_before_;
    // Ends with the pass, and with the pass's callbacks when it failed.
    std::optional<WorkerSilence> silence_;
};

}  // namespace ddpdiag
