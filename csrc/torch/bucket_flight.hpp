// From the end of a bucket's all-reduce to the result that DDP takes.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>

#include "torch/bucket_operation.hpp"
#include "torch/compressed_bucket.hpp"
#include "torch/module_state.hpp"

namespace ddpdiag {

struct Enqueued {
    c10::intrusive_ptr<c10::ivalue::Future> future;  // Gloo's own
    std::shared_ptr<BucketOperation> operation;      // nullptr: the recorder is paused
    std::shared_ptr<CompressedBucket> compressed;    // nullptr: it travels as it is
    at::Tensor buffer;
};

// A future for DDP that gets `result` when the bucket is reduced and finished, or the error with rank and bucket.
c10::intrusive_ptr<c10::ivalue::Future> finished(Enqueued enqueued, ModuleState& module, std::size_t index,
                                                 const c10::TypePtr& type, c10::IValue result);

}  // namespace ddpdiag
