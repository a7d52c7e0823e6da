#include "torch/reduce/messages.hpp"

#include <ATen/record_function.h>

#include <utility>

namespace ddpdiag {

Messages::Messages(c10::intrusive_ptr<c10d::Backend> group, int tag) : group_(std::move(group)), tag_(tag) {}

void Messages::begin(Works& works, at::Tensor&& values, std::int64_t peer, bool send) {
    if (values.numel() == 0) {
        return;
    }
    const at::RecordFunctionGuard no_spans(/*is_enabled=*/false);
    std::vector<at::Tensor> one = {std::move(values)};
    const int rank = static_cast<int>(peer);
    works.push_back(send ? group_->send(one, rank, tag_) : group_->recv(one, rank, tag_));
}

void Messages::swap_with_all(const TensorOf& theirs, const TensorOf& ours) {
    const std::int64_t ranks = group_->getSize();
    const std::int64_t rank = group_->getRank();
    for (std::int64_t distance = 1; distance < ranks; ++distance) {
        const std::int64_t from = (rank + distance) % ranks;
        ask(theirs(from), from);
    }
    for (std::int64_t distance = 1; distance < ranks; ++distance) {
        // Send to the ranks before us, as each rank does, so that not all send to the same one at once.
        const std::int64_t to = (rank - distance + ranks) % ranks;
        send(ours(to), to);
    }
}

void Messages::await_all() {
    while (awaited_ < asked_.size()) {
        await_next();
    }
    for (const auto& work : sent_) {
        work->wait();
    }
}

}  // namespace ddpdiag
