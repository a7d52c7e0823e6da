#include "core/shared/hosts.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/shared/at_buckets.hpp"
#include "core/shared/errors.hpp"
#include "core/shared/units.hpp"

namespace ddpdiag {
namespace {

// Each rank carries consecutive units, as even as possible.
std::uint64_t first_unit(std::size_t rank, std::size_t ranks, std::uint64_t units) noexcept {
    return units * rank / ranks;
}

std::size_t carrier_of(std::uint64_t unit, std::size_t ranks, std::uint64_t units) noexcept {
    return static_cast<std::size_t>(((unit + 1) * ranks - 1) / units);
}

}  // namespace

HostsSum::HostsSum(const Board& board, SharedBetween& between, const Wait& wait, std::uint64_t number,
                   const SharedBucket& ours)
    : board_(&board), between_(&between), wait_(&wait), number_(number), ours_(&ours), part_(own_part()) {}

// Nobody is through before all of the host are, we included: the others' buckets stay where they are meanwhile.
void HostsSum::complete(MappedBuckets& mapped) {
    if (part_.bytes > 0) {
        // While it is on its way, this host sums.
        wait_->over_hosts(*between_, [&](auto /*limit*/) {
            between_->tell(ours_->key());
            return true;
        });
    }
    std::vector<std::byte*> all;
    while (all.empty()) {
        wait_->until([&] { return board_->all_have_announced(number_); },
                     [&] { return board_->not_announced_by(number_); }, true);
        all = mapped.of(number_, *ours_);
    }
    sum_up(all);
    if (part_.bytes > 0) {
        add_up();
    }
    hand_out(all);
}

void HostsSum::sum_up(const std::vector<std::byte*>& buckets) {
    SharedSum sum = ours_->sum;
    sum.hosts = between_->names().size();
    const std::uint64_t units = units_of(*ours_);
    sum_units(*board_, number_, *ours_, sum, buckets, [&](std::uint64_t unit) {
        return std::span(&buckets[carrier_of(unit, board_->ranks(), units)], 1);
    });
    wait_->until([&] { return is_done(*board_, number_, *ours_); },
                 [&] { return board_->busy_with(number_); }, false, follower_error_delay);
}

void HostsSum::add_up() {
    std::vector<BucketKey> keys;
    wait_->over_hosts(*between_, [&](auto limit) { return !(keys = between_->keys(limit)).empty(); });
    for (std::size_t host = 0; host < keys.size(); ++host) {
        require_same(*board_, ours_->key(), between_->names()[host], keys[host]);
    }
    if (ours_->wire != nullptr) {
        add_up_in_16_bits();
        return;
    }
    over_hosts(
        [&] { between_->begin(ours_->block, ours_->offset + part_.begin, part_.bytes, ours_->sum.element); });
}

void HostsSum::add_up_in_16_bits() {
    SharedWire& wire = *ours_->wire;
    const Element element = ours_->sum.element;
    std::byte* const values = ours_->data() + part_.begin;
    wire.round(values, element, part_.bytes / size_of(element), between_->names().size(), between_->home());
    over_hosts([&] { between_->begin(wire.values_to_swap()); });
    wire.add_up();
    if (const auto sums = wire.sums_to_swap()) {
        over_hosts([&] { between_->begin(*sums); });
    }
    wire.widen(values, element);
}

void HostsSum::over_hosts(const std::function<void()>& begin) {
    wait_->over_hosts(*between_, [&](auto /*limit*/) {
        begin();
        return true;
    });
    wait_->over_hosts(*between_, [&](auto limit) { return between_->wait(limit); });
}

void HostsSum::hand_out(const std::vector<std::byte*>& buckets) {
    {
        const AtBuckets here(*board_, number_);
        if (here.one_has_failed()) {
            throw failed_error(*board_, board_->failed());
        }
        const std::byte* const own = buckets[board_->own_rank()];
        for (std::size_t rank = 0; rank < board_->ranks(); ++rank) {
            if (rank != board_->own_rank()) {
                std::memcpy(buckets[rank] + part_.begin, own + part_.begin, part_.bytes);
            }
        }
    }
    board_->hand_out(number_);
    wait_->until([&] { return board_->not_handed_out_by(number_).empty(); },
                 [&] { return board_->not_handed_out_by(number_); }, true, follower_error_delay);
}

HostsSum::Part HostsSum::own_part() const noexcept {
    const std::size_t rank = board_->own_rank();
    const std::uint64_t units = units_of(*ours_);
    const std::uint64_t unit = unit_of(ours_->sum.bytes);
    const std::uint64_t begin = first_unit(rank, board_->ranks(), units) * unit;
    const std::uint64_t end = std::min(first_unit(rank + 1, board_->ranks(), units) * unit, ours_->sum.bytes);
    return {.begin = begin, .bytes = end - begin};
}

}  // namespace ddpdiag
