// Buckets that do not come from DDP: those of a GradientReducer, recorded like DDP's.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "torch/probe/backward_pass.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/reduce/choose_path.hpp"

namespace ddpdiag {

// One module's passes, one after the other: first_gradient, begin for each bucket in order, waiting, taken
// for each bucket, done. If a pass does not finish, the next bucket 0 begins a new one.
class Reduction {
public:
    Reduction(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module, PathOptions options);

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
    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<ModuleState> module_;
    PathOptions options_;
    std::shared_ptr<BackwardPass> pass_;
};

}  // namespace ddpdiag
