// Sums a 16-bit bucket over the ranks with our kernel instead of Gloo's, which adds value by value.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "torch/group.hpp"
#include "torch/reduce/path.hpp"

namespace ddpdiag {

// Every rank owns a part of the bucket. It gets the others' values of its part, adds them in f32 in the order
// of the ranks, rounds the sum once and sends the sums to all. Two ranks each get the whole of the other's
// bucket and add by themselves: one message instead of two. In both cases all ranks hold the same bits; with
// two ranks they are those of Gloo's own all-reduce.
//
// Between the processes of one host this is an all-to-all. Large buckets between hosts travel by messages instead, and
// the collective moves nothing: it makes the bucket wait for its turn on Gloo's worker. Gloo's all-to-all
// sends before it asks for what it is to receive. A rank whose socket is full by then can ask only after all
// its data is sent, so a link carries one direction after the other.
class BucketExchange {
public:
    // The same answer on all ranks: it decides which collective they begin.
    // `peers`: those of the group, or nullptr if they are not known.
    [[nodiscard]] static bool suits(const at::Tensor& wire, const Group& group, const Peers* peers);

    // `group` must outlive it.
    BucketExchange(const at::Tensor& wire, const Group& group, std::shared_ptr<const Peers> peers);

    // Enqueues the collective. `sequence`: of the bucket in its group, the same on all ranks.
    [[nodiscard]] Begun begin(std::uint64_t sequence);
    // Called when its future is done, on the worker's thread. Waits for the other ranks, as long as the
    // group's timeout allows. The worker may wait here because the workers of every rank start on the buckets
    // in the same order: every rank is working on the first bucket that is not done. With two ranks, it
    // reports how many values there are as they arrive, in order.
    void finish(const std::function<void(std::int64_t)>& arrived);
    // What is left to add afterwards, in this order: the buckets of two ranks, else only the sum in the wire.
    [[nodiscard]] std::vector<const std::uint16_t*> addends() const;

private:
    [[nodiscard]] at::Tensor part_of(std::int64_t rank) const;
    [[nodiscard]] at::Tensor to_add_up_by(std::int64_t rank) const;
    [[nodiscard]] at::Tensor received_from(std::int64_t rank) const;
    void swap_with_the_other(const std::function<void(std::int64_t)>& arrived);
    void add_up_our_part();

    at::Tensor wire_;
    const Group* group_;
    std::shared_ptr<const Peers> peers_;
    at::Tensor inbox_;  // the values of all ranks for our part; our own stay in the wire if we add all parts
    std::int64_t part_;
    bool by_messages_;
    int tag_ = 0;
};

}  // namespace ddpdiag
