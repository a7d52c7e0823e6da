// The bucket as it is, in parts over several interfaces at once (docs/lanes.md).
#pragma once

#include <cstdint>
#include <memory>

#include "torch/reduce/lanes/parts.hpp"
#include "torch/reduce/path.hpp"

namespace ddpdiag {

// The same bits as the plain path.
class LanesPath final : public Path {
public:
    // `divided_by`: the gradients are already divided by this; 0: they are not.
    LanesPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group, std::shared_ptr<Lanes> lanes,
              std::int64_t divided_by);

    Prepared prepare(const at::Tensor& buffer, bool with_statistics) override;
    [[nodiscard]] Begun begin(const at::Tensor& buffer, const Turn& turn) override;
    void collect(const at::Tensor& buffer) override;

private:
    LanesPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group, LaneParts parts,
              std::int64_t divided_by);

    LaneParts parts_;
    bool divided_;
};

// How long sums of so many bytes, one after the other, take over lanes: for a choice of their rates. No probe sees them.
[[nodiscard]] double seconds_over(const std::shared_ptr<Lanes>& lanes, std::int64_t bytes, int times);

}  // namespace ddpdiag
