// Messages between the ranks of a Gloo group, instead of a collective.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ddpdiag {

// Those of one turn. Collectives must begin in the same order on all ranks, but the ranks' workers may come with two
// buckets in either order. The tag says which bucket a message belongs to, and messages with one tag keep their order.
class Messages {
public:
    // Holds the group while they are in flight, even as its last owner: so never on one of the group's threads.
    Messages(c10::intrusive_ptr<c10d::Backend> group, int tag);

    // Ask for everything before sending anything. Nothing is sent for no values, which both sides must know.
    void ask(at::Tensor values, std::int64_t from) { begin(asked_, std::move(values), from, false); }
    void send(at::Tensor values, std::int64_t to) { begin(sent_, std::move(values), to, true); }
    // Both with all other ranks: what is to come from each, and what goes to each.
    using TensorOf = std::function<at::Tensor(std::int64_t)>;
    void swap_with_all(const TensorOf& theirs, const TensorOf& ours);
    // The next requested message, in the order of the requests. Wait once for each: Gloo would wait for
    // another one.
    void await_next() { asked_[awaited_++]->wait(); }
    void await_all();

private:
    using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

    void begin(Works& works, at::Tensor&& values, std::int64_t peer, bool send);

    c10::intrusive_ptr<c10d::Backend> group_;
    int tag_;
    Works asked_;
    std::size_t awaited_ = 0;
    Works sent_;
};

}  // namespace ddpdiag
