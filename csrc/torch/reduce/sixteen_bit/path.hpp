// A bucket's gradients in 16 bits: what travels instead of the bucket (docs/compression.md).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "torch/reduce/path.hpp"
#include "torch/reduce/sixteen_bit/exchange.hpp"

namespace ddpdiag {

class SixteenBitPath final : public Path {
public:
    // Whether a bucket can be compressed: dense f32 or f64. Others travel as they are.
    [[nodiscard]] static bool possible(const at::Tensor& buffer);

    // `type`: that of the values that travel. `error_feedback`: adds what the last rounding lost to the next
    // step's gradients.
    SixteenBitPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group, c10::ScalarType type,
                   bool error_feedback);

    // Divides by the number of ranks and rounds. Never takes statistics.
    Prepared prepare(const at::Tensor& buffer, bool with_statistics) override;
    [[nodiscard]] Begun begin(const at::Tensor& buffer, const Turn& turn) override;
    // Also does as much of `finish` as is possible while values still arrive.
    void collect(const at::Tensor& buffer) override;
    void finish(const at::Tensor& buffer) override;

private:
    [[nodiscard]] std::vector<const std::uint16_t*> addends() const;
    void expand_up_to(const at::Tensor& buffer, std::int64_t end);
    void round_on_device(const at::Tensor& buffer, double scale);

    at::Tensor wire_;
    std::optional<BucketExchange> exchange_;  // nothing: Gloo's all-reduce
    std::int64_t expanded_ = 0;               // this many values, in f32
    at::Tensor residual_;                     // f32 or f64 as the buffer; undefined without error feedback
};

}  // namespace ddpdiag
