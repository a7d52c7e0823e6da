#include "torch/reduce/collectives.hpp"

#include <utility>
#include <vector>

namespace ddpdiag {

Begun begun_by(c10::intrusive_ptr<c10d::Work> work) {
    auto future = work->getFuture();
    return {.future = std::move(future), .work = std::move(work)};
}

Begun all_reduce(const Group& group, const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors = {tensor};
    return begun_by(group.lock()->allreduce(tensors));
}

}  // namespace ddpdiag
