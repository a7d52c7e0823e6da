#include "torch/reduce/sixteen_bit/exchange.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "torch/compat.hpp"
#include "torch/element.hpp"
#include "torch/reduce/collectives.hpp"
#include "torch/reduce/messages.hpp"

namespace ddpdiag {
namespace {

// Below that, we assume that the latency of a second round of messages outweighs the faster sum
// (docs/compression.md).
constexpr std::size_t worthwhile_above = std::size_t{128} << 10U;
// What a socket takes at once in practice: sending more to one rank delays our request for its data.
constexpr std::size_t messages_above = std::size_t{256} << 10U;
// With two ranks: data that has arrived is added while the rest is on its way.
constexpr std::int64_t piece = std::int64_t{512} * 1024;  // values
constexpr std::uint64_t tags = std::uint64_t{1} << 30U;

}  // namespace

bool BucketExchange::suits(const at::Tensor& wire, const Group& group, const Peers* peers) {
    if (!wire.is_cpu() || wire.numel() == 0) {
        return false;
    }
    return group.size == 2 ||
           (peers != nullptr && peers->has_messages() && wire.nbytes() >= worthwhile_above);
}

BucketExchange::BucketExchange(const at::Tensor& wire, const Group& group, std::shared_ptr<const Peers> peers)
    : wire_(wire),
      group_(&group),
      peers_(std::move(peers)),
      part_((wire.numel() + group.size - 1) / group.size) {
    const std::int64_t values = group.size == 2 ? wire.numel() : group.size * part_of(group.rank).numel();
    inbox_ = at::empty({values}, wire.options());
    // The largest message decides; it is the same on all ranks.
    by_messages_ = peers_ != nullptr && !peers_->on_one_host() && to_add_up_by(0).nbytes() > messages_above;
}

at::Tensor BucketExchange::part_of(std::int64_t rank) const {
    const std::int64_t begin = std::min(rank * part_, wire_.numel());
    return wire_.narrow(0, begin, std::min(part_, wire_.numel() - begin));
}

at::Tensor BucketExchange::to_add_up_by(std::int64_t rank) const {
    return group_->size == 2 ? wire_ : part_of(rank);
}

at::Tensor BucketExchange::received_from(std::int64_t rank) const {
    if (group_->size == 2) {
        return inbox_;
    }
    const std::int64_t values = part_of(group_->rank).numel();
    return inbox_.narrow(0, rank * values, values);
}

Begun BucketExchange::begin(std::uint64_t sequence) {
    // No other bucket in flight has this tag: both the messages' group and the number belong to this recorder
    // alone.
    tag_ = static_cast<int>(sequence % tags);
    const auto ranks = static_cast<std::size_t>(group_->size);
    std::vector<std::int64_t> sends(ranks, 0);
    std::vector<std::int64_t> receives(ranks, 0);
    if (by_messages_) {
        // It moves no values, but waits for all ranks. One that does not wait (an empty all-reduce) may be
        // done before `finish` becomes its continuation, which would then run right here and block the
        // backward pass.
        at::Tensor nothing = wire_.narrow(0, 0, 0);
        return begun_by(all_to_all(*group_->lock(), nothing, nothing, receives, sends));
    }
    for (std::int64_t rank = 0; rank < group_->size; ++rank) {
        if (group_->size > 2 || rank != group_->rank) {
            sends[static_cast<std::size_t>(rank)] = to_add_up_by(rank).numel();
            receives[static_cast<std::size_t>(rank)] = received_from(rank).numel();
        }
    }
    return begun_by(all_to_all(*group_->lock(), inbox_, wire_, receives, sends));
}

std::vector<const std::uint16_t*> BucketExchange::addends() const {
    if (group_->size != 2) {
        return {bits(wire_)};
    }
    // In the same order on both ranks: of two NaN, the order decides which one the sum is.
    return group_->rank == 0 ? std::vector{bits(wire_), bits(inbox_)}
                             : std::vector{bits(inbox_), bits(wire_)};
}

void BucketExchange::finish(const std::function<void(std::int64_t)>& arrived) {
    if (group_->size == 2) {
        if (by_messages_) {
            swap_with_the_other(arrived);
        }
        return;
    }
    if (by_messages_) {
        Messages values(peers_->messages(), tag_);
        values.swap_with_all([this](std::int64_t rank) { return received_from(rank); },
                             [this](std::int64_t rank) { return to_add_up_by(rank); });
        values.await_all();
    }
    add_up_our_part();
    Messages sums(peers_->messages(), tag_);
    sums.swap_with_all([this](std::int64_t rank) { return part_of(rank); },
                       [this](std::int64_t) { return part_of(group_->rank); });
    sums.await_all();
}

void BucketExchange::swap_with_the_other(const std::function<void(std::int64_t)>& arrived) {
    const std::int64_t other = 1 - group_->rank;
    Messages messages(peers_->messages(), tag_);
    std::vector<std::int64_t> ends;
    for (std::int64_t begin = 0; begin < wire_.numel(); begin = ends.back()) {
        ends.push_back(std::min(begin + piece, wire_.numel()));
        messages.ask(inbox_.slice(0, begin, ends.back()), other);
    }
    for (std::int64_t begin = 0; const std::int64_t end : ends) {
        messages.send(wire_.slice(0, begin, end), other);
        begin = end;
    }
    for (const std::int64_t end : ends) {
        messages.await_next();
        arrived(end);
    }
    messages.await_all();
}

void BucketExchange::add_up_our_part() {
    const at::Tensor ours = part_of(group_->rank);
    std::vector<const std::uint16_t*> inputs;
    inputs.reserve(static_cast<std::size_t>(group_->size));
    for (std::int64_t rank = 0; rank < group_->size; ++rank) {
        inputs.push_back(bits(rank == group_->rank ? ours : received_from(rank)));
    }
    add_up(wire_.scalar_type(), inputs, static_cast<std::uint16_t*>(ours.mutable_data_ptr()), ours.numel());
}

}  // namespace ddpdiag
