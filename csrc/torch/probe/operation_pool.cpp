#include "torch/probe/operation_pool.hpp"

#include <utility>

#include "torch/idle.hpp"
#include "torch/probe/bucket_operation.hpp"

namespace ddpdiag {

const std::shared_ptr<BucketOperation>& OperationPool::take(std::size_t index) {
    if (index >= operations_.size()) {
        operations_.resize(index + 1);
    }
    return idle(operations_[index]);
}

void OperationPool::expect(const std::shared_ptr<BucketOperation>& operation) {
    unconsumed_.push_back(operation);
}

void OperationPool::consume_next() {
    if (next_consumed_ < unconsumed_.size()) {
        unconsumed_[next_consumed_++]->consumed();
    }
}

void OperationPool::hold(c10::intrusive_ptr<c10::ivalue::Future> future) {
    held_.push_back(std::move(future));
}

void OperationPool::abandon_pass() {
    for (; next_consumed_ < unconsumed_.size(); ++next_consumed_) {
        unconsumed_[next_consumed_]->abandoned();
    }
    unconsumed_.clear();
    next_consumed_ = 0;
    held_.clear();
}

}  // namespace ddpdiag
