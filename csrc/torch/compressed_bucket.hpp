// A bucket's gradients in 16 bits: what travels instead of the bucket (docs/compression.md).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "torch/bucket_exchange.hpp"

namespace ddpdiag {

// The numbers are pyddpdiag.compression's.
enum class Compression : std::uint8_t { none = 0, bf16 = 1, fp16 = 2 };

struct CompressionOptions {
    Compression to = Compression::none;
    // Adds what the last rounding lost to the next step's gradients.
    bool error_feedback = false;
};

// The memory for one bucket, kept from step to step. Its calls follow each other: compress, reduce, collect, expand.
class CompressedBucket {
public:
    // Whether a bucket can be compressed: dense f32 or f64. Others travel as they are.
    [[nodiscard]] static bool possible(const at::Tensor& buffer);

    CompressedBucket(const at::Tensor& buffer, const Group& group, const CompressionOptions& options);

    // False for another buffer than it was made for: DDP has rebuilt its buckets. Or for another group.
    [[nodiscard]] bool serves(const at::Tensor& buffer, const Group& group) const;

    // Divides the buffer's values by `ranks` and rounds them.
    void compress(const at::Tensor& buffer, std::int64_t ranks);
    [[nodiscard]] const at::Tensor& wire() const { return wire_; }
    // Enqueues the sum of the wire over the ranks. `sequence`: of the bucket in its group.
    [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> reduce(std::uint64_t sequence);
    // On the worker's thread, when that is done: what other ranks are needed for besides, and as much of `expand` as can
    // be done while values still arrive. May throw.
    void collect(const at::Tensor& buffer);
    // Writes the reduced values back, on the worker's thread.
    void expand(const at::Tensor& buffer);

private:
    [[nodiscard]] std::vector<const std::uint16_t*> addends() const;
    void expand_up_to(const at::Tensor& buffer, std::int64_t end);

    // Weak, which also keeps the address from being given to another buffer.
    c10::weak_intrusive_ptr<c10::TensorImpl> serves_;
    const Group* group_;
    at::Tensor wire_;
    std::optional<BucketExchange> exchange_;  // nothing: Gloo's all-reduce
    std::int64_t expanded_ = 0;               // so many values, in f32
    at::Tensor residual_;                     // f32 or f64 as the buffer; undefined without error feedback
};

}  // namespace ddpdiag
