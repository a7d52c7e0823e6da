// Buckets that do not come from DDP: those of a GradientReducer, recorded like DDP's.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "torch/probe/backward_pass.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/reduce/shared_path.hpp"
#include "torch/reduce/shared_ranks.hpp"

namespace ddpdiag {

// One module's passes, one after the other: first_gradient, begin for each bucket in order, waiting, taken
// for each bucket, done. If a pass does not finish, the next bucket 0 begins a new one.
class Reduction {
public:
    // `shared`: the ranks that add up the buckets in shared memory; nullptr: Gloo does.
    Reduction(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module,
              std::shared_ptr<SharedRanks> shared);

    // The backward pass has produced its first gradient.
    void first_gradient();
    // Enqueues the sum of bucket `index` of `count` over the ranks. Its gradients were divided by their number before.
    // `number`: what all ranks call it in shared memory.
    [[nodiscard]] c10::intrusive_ptr<c10d::Work> begin(std::size_t index, std::size_t count,
                                                       const at::Tensor& buffer,
                                                       std::vector<at::Tensor> parameters,
                                                       std::uint64_t number);
    // All buckets have begun; all that is left is to wait.
    void waiting();
    // The next bucket's averages are in the gradients.
    void taken();
    void done();

private:
    [[nodiscard]] std::shared_ptr<Path> path(std::size_t index, const at::Tensor& buffer,
                                             std::uint64_t number);

    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<ModuleState> module_;
    std::shared_ptr<SharedRanks> shared_;
    std::vector<std::shared_ptr<SharedPath>> shared_paths_;  // by bucket
    std::shared_ptr<BackwardPass> pass_;
};

}  // namespace ddpdiag
