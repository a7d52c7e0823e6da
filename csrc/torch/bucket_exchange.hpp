// The sum of a 16-bit bucket over the ranks with our kernel instead of Gloo's, which adds value by value.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <functional>
#include <vector>

#include "torch/process_group.hpp"

namespace ddpdiag {

// Every rank owns a part of the bucket. It gets the others' values of its part, adds them up in f32 in the order of the
// ranks, rounds once and hands the sums to all. Of two ranks each gets the whole of the other's bucket and adds by
// itself: one message instead of two. In both cases all ranks hold the same bits; with two ranks they are those of
// Gloo's own all-reduce.
//
// Between the processes of one host this is an all-to-all. Large buckets between hosts travel by messages instead, and
// the collective moves nothing: it makes the bucket wait for its turn on Gloo's worker. Gloo's all-to-all sends before it
// asks for what it shall receive. A rank whose socket is full by then can ask only when all that it sends is gone, so
// that a link carries one direction after the other.
class BucketExchange {
public:
    // The same answer on all ranks: it decides which collective they begin.
    [[nodiscard]] static bool suits(const at::Tensor& wire, const Group& group);

    BucketExchange(const at::Tensor& wire, const Group& group);

    // Enqueues the collective. `sequence`: of the bucket in its group, the same on all ranks.
    [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> begin(std::uint64_t sequence);
    // When its future is done, on the worker's thread. Waits for the other ranks, as long as the group's timeout allows.
    // The worker may wait here because the workers of every rank take up the buckets in the same order: the first bucket
    // that is not done is being worked on everywhere. Of two ranks' values it tells as they arrive, in order, how many
    // there are.
    void finish(const std::function<void(std::int64_t)>& arrived);
    // What is left to add up afterwards, in this order: the buckets of two ranks, else the sum in the wire alone.
    [[nodiscard]] std::vector<const std::uint16_t*> addends() const;

private:
    [[nodiscard]] at::Tensor part_of(std::int64_t rank) const;
    [[nodiscard]] at::Tensor to_add_up_by(std::int64_t rank) const;
    [[nodiscard]] at::Tensor received_from(std::int64_t rank) const;
    void swap_with_the_other(const std::function<void(std::int64_t)>& arrived);
    void add_up_our_part();

    at::Tensor wire_;
    const Group* group_;
    at::Tensor
        inbox_;  // the values of all ranks of what we add up; our own stay in the wire if we add up all
    std::int64_t part_;
    bool by_messages_;
    int tag_ = 0;
};

}  // namespace ddpdiag
