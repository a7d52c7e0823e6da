// The bucket in memory that the ranks of one host share: they sum it themselves, without Gloo (docs/shared-memory.md).
#pragma once

#include <cstdint>
#include <memory>

#include "torch/reduce/path.hpp"
#include "torch/reduce/shared/place.hpp"
#include "torch/reduce/shared/ranks.hpp"

namespace ddpdiag {

// The same bits as torch's builtin hook for f32 and f64 on one host. 16-bit gradients are summed in f32 and rounded once.
class SharedPath final : public Path {
public:
    // The same answer on all ranks.
    [[nodiscard]] static bool possible(const at::Tensor& buffer);

    // `divided_by`: the gradients are already divided by this; 0: they are not.
    SharedPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
               std::shared_ptr<SharedRanks> ranks, std::int64_t divided_by);
    // As above, of several hosts, whose sums travel in 16 bits as `wire` says.
    SharedPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
               std::shared_ptr<SharedRanks> ranks, std::shared_ptr<SharedWire> wire);

    // The sum divides.
    Prepared prepare(const at::Tensor& buffer, bool with_statistics) override;
    // Moves the bucket into shared memory if it is not there.
    [[nodiscard]] Begun begin(const at::Tensor& buffer, const Turn& turn) override;

private:
    std::shared_ptr<SharedRanks> ranks_;
    bool divided_;
    SharedPlace place_;
};

}  // namespace ddpdiag
