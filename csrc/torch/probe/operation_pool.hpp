// A module's bucket operations, reused from pass to pass.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace ddpdiag {

class BucketOperation;

class OperationPool {
public:
    // An operation for bucket `index` that nobody else holds.
    [[nodiscard]] const std::shared_ptr<BucketOperation>& take(std::size_t index);

    // DDP will take the results of these operations, in this order.
    void expect(const std::shared_ptr<BucketOperation>& operation);
    [[nodiscard]] bool expects_some() const noexcept { return !unconsumed_.empty(); }
    // The next result was taken.
    void consume_next();

    // Holds one of Gloo's futures until the pass ends, so that this thread destroys it: a worker would do so
    // under the mutex that the next bucket needs.
    void hold(c10::intrusive_ptr<c10::ivalue::Future> future);
    void end_pass() { held_.clear(); }
    // A pass that never ended, or one of join(): nobody will take its results any more.
    void abandon_pass();

private:
    std::vector<std::shared_ptr<BucketOperation>> operations_;  // by bucket index
    std::vector<std::shared_ptr<BucketOperation>> unconsumed_;
    std::size_t next_consumed_ = 0;
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> held_;
};

}  // namespace ddpdiag
