// Buckets that no DDP brings: those of a GradientReducer, recorded as DDP's are.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstddef>
#include <memory>
#include <vector>

#include "torch/backward_pass.hpp"
#include "torch/recorder.hpp"

namespace ddpdiag {

// One module's passes, one after the other: first_gradient, begin for each bucket in order, waiting, taken for each
// bucket, done. Begun anew with the next bucket 0 if one of them did not come to its end.
class Reduction {
public:
    Reduction(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module);

    // The backward pass has brought its first gradient.
    void first_gradient();
    // Enqueues the sum of bucket `index` of `count` over the ranks. Its gradients were divided by their number before.
    [[nodiscard]] c10::intrusive_ptr<c10d::Work> begin(std::size_t index, std::size_t count,
                                                       const at::Tensor& buffer,
                                                       std::vector<at::Tensor> parameters);
    // All buckets were begun, and there is nothing left to do but to wait.
    void waiting();
    // The next bucket's averages are in the gradients.
    void taken();
    void done();

private:
    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<ModuleState> module_;
    std::shared_ptr<BackwardPass> pass_;
};

}  // namespace ddpdiag
