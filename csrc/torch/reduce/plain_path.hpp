// The bucket as it is: divided by the number of ranks, then summed by Gloo's all-reduce.
#pragma once

#include <memory>
#include <optional>

#include "torch/reduce/path.hpp"

namespace ddpdiag {

// The same two operations, in the same order, as torch's builtin hook, so that the result is the same to the last bit.
class PlainPath final : public Path {
public:
    // `divided_by`: the gradients are already divided by this; 0: they are not.
    PlainPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group, std::int64_t divided_by);

    Prepared prepare(const at::Tensor& buffer, bool with_statistics) override;
    [[nodiscard]] Begun begin(const at::Tensor& buffer, const Turn& turn) override;

private:
    bool divided_;
};

}  // namespace ddpdiag
