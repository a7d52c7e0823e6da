#include "torch/bucket_exchange.hpp"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "torch/compat.hpp"
#include "torch/element.hpp"

namespace ddpdiag {
namespace {

// Below that, the latency of a second round of messages is taken to outweigh the faster sum (docs/compression.md).
constexpr std::size_t worthwhile_above = std::size_t{128} << 10U;
constexpr std::uint64_t tags = std::uint64_t{1} << 30U;

// A worker must not be the last owner of its own group, which would wait for the end of its own thread.
class BorrowedGroup {
public:
    explicit BorrowedGroup(c10::intrusive_ptr<c10d::ProcessGroup> handle) : handle_(std::move(handle)) {}
    BorrowedGroup(const BorrowedGroup&) = delete;
    BorrowedGroup& operator=(const BorrowedGroup&) = delete;
    ~BorrowedGroup() {
        if (handle_.use_count() == 1) {
            static_cast<void>(handle_.release());
        }
    }
    [[nodiscard]] c10d::ProcessGroup& get() const { return *handle_; }

private:
    c10::intrusive_ptr<c10d::ProcessGroup> handle_;
};

}  // namespace

bool BucketExchange::suits(const at::Tensor& wire, const Group& group) {
    if (!wire.is_cpu() || wire.numel() == 0) {
        return false;
    }
    return group.size == 2 || (!group.messages.expired() && wire.nbytes() >= worthwhile_above);
}

BucketExchange::BucketExchange(const at::Tensor& wire, const Group& group)
    : wire_(wire), group_(&group), part_((wire.numel() + group.size - 1) / group.size) {
    const std::int64_t values = group.size == 2 ? wire.numel() : group.size * part_of(group.rank).numel();
    inbox_ = at::empty({values}, wire.options());
}

at::Tensor BucketExchange::part_of(std::int64_t rank) const {
    const std::int64_t begin = std::min(rank * part_, wire_.numel());
    return wire_.narrow(0, begin, std::min(part_, wire_.numel() - begin));
}

c10::intrusive_ptr<c10::ivalue::Future> BucketExchange::begin(std::uint64_t sequence) {
    const auto ranks = static_cast<std::size_t>(group_->size);
    std::vector<std::int64_t> sends(ranks);
    std::vector<std::int64_t> receives(ranks);
    const auto ours = static_cast<std::size_t>(group_->rank);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (ranks == 2) {
            sends[rank] = receives[rank] = rank == ours ? 0 : wire_.numel();
        } else {
            sends[rank] = part_of(static_cast<std::int64_t>(rank)).numel();
            receives[rank] = part_of(group_->rank).numel();
        }
    }
    // No other bucket under way has it: the group of the messages is this recorder's alone, as is the number.
    tag_ = static_cast<int>(sequence % tags);
    return all_to_all(*group_->lock(), inbox_, wire_, receives, sends)->getFuture();
}

std::vector<const std::uint16_t*> BucketExchange::addends() const {
    if (group_->size != 2) {
        return {bits(wire_)};
    }
    // In the same order on both: that of two NaN decides which of them the sum is.
    return group_->rank == 0 ? std::vector{bits(wire_), bits(inbox_)}
                             : std::vector{bits(inbox_), bits(wire_)};
}

void BucketExchange::finish() {
    if (group_->size == 2) {
        return;
    }
    const at::Tensor ours = part_of(group_->rank);
    std::vector<const std::uint16_t*> inputs;
    inputs.reserve(static_cast<std::size_t>(group_->size));
    for (std::int64_t rank = 0; rank < group_->size; ++rank) {
        inputs.push_back(bits(inbox_) + rank * ours.numel());
    }
    add_up(wire_.scalar_type(), inputs, static_cast<std::uint16_t*>(ours.mutable_data_ptr()), ours.numel());
    const BorrowedGroup group(group_->lock_messages());
    hand_around(group.get());
}

// Messages and no collective: those must be begun in the same order on all ranks, and the ranks' workers may come here
// with two buckets in either order. The tag says whose a message is.
void BucketExchange::hand_around(c10d::ProcessGroup& group) {
    const at::RecordFunctionGuard no_spans(/*is_enabled=*/false);
    std::vector<c10::intrusive_ptr<c10d::Work>> under_way;
    for (std::int64_t distance = 1; distance < group_->size; ++distance) {
        const std::int64_t from = (group_->rank + distance) % group_->size;
        const std::int64_t to = (group_->rank - distance + group_->size) % group_->size;
        std::vector<at::Tensor> theirs = {part_of(from)};
        std::vector<at::Tensor> ours = {part_of(group_->rank)};
        if (theirs[0].numel() > 0) {
            under_way.push_back(group.recv(theirs, static_cast<int>(from), tag_));
        }
        if (ours[0].numel() > 0) {
            under_way.push_back(group.send(ours, static_cast<int>(to), tag_));
        }
    }
    for (const auto& work : under_way) {
        work->wait();
    }
}

}  // namespace ddpdiag
