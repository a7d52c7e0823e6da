// Buckets of several hosts, each with several ranks that share memory.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "core/shared/at_buckets.hpp"
#include "core/shared/exchange.hpp"
#include "core/shared/wait.hpp"

namespace ddpdiag {
namespace {

// Each rank carries consecutive units, as even as possible.
std::uint64_t first_unit(std::size_t rank, std::size_t ranks, std::uint64_t units) noexcept {
    return units * rank / ranks;
}

std::size_t carrier_of(std::uint64_t unit, std::size_t ranks, std::uint64_t units) noexcept {
    return static_cast<std::size_t>(((unit + 1) * ranks - 1) / units);
}

BucketKey key_of(const SharedBucket& bucket) noexcept {
    return {bucket.sequence, bucket.sum.bytes, kind_of(bucket.sum, bucket.wire.get())};
}

}  // namespace

// Nobody is through before all of the host are, we included: the others' buckets stay where they are meanwhile.
void SharedExchange::complete_over_hosts(std::uint64_t number, const SharedBucket& ours, Wait& wait) {
    const Part part = own_part(ours);
    if (part.bytes > 0) {
        // While it is on its way, this host sums.
        wait.over_hosts(*between_, [&](auto /*limit*/) {
            between_->tell(key_of(ours));
            return true;
        });
    }
    std::vector<std::byte*> all;
    while (all.empty()) {
        wait.until([&] { return all_have_announced(number); }, [&] { return not_announced_by(number); },
                   true);
        all = buckets(number, ours);
    }
    SharedSum sum = ours.sum;
    sum.hosts = between_->names().size();
    const std::uint64_t units = units_of(ours);
    sum_units(number, ours, sum, all,
              [&](std::uint64_t unit) { return std::span(&all[carrier_of(unit, ranks(), units)], 1); });
    wait.until([&] { return is_done(number, ours); }, [&] { return busy_with(number); }, false,
               follower_error_delay);
    if (part.bytes > 0) {
        add_up(part, ours, wait);
    }
    hand_out(number, part, all, wait);
}

void SharedExchange::add_up(const Part& part, const SharedBucket& ours, Wait& wait) {
    std::vector<BucketKey> keys;
    wait.over_hosts(*between_, [&](auto limit) { return !(keys = between_->keys(limit)).empty(); });
    for (std::size_t host = 0; host < keys.size(); ++host) {
        require_same(key_of(ours), between_->names()[host], keys[host]);
    }
    if (ours.wire != nullptr) {
        add_up_in_16_bits(part, ours, wait);
        return;
    }
    wait.over_hosts(*between_, [&](auto /*limit*/) {
        between_->begin(ours.block, ours.offset + part.begin, part.bytes, ours.sum.element);
        return true;
    });
    wait.over_hosts(*between_, [&](auto limit) { return between_->wait(limit); });
}

void SharedExchange::add_up_in_16_bits(const Part& part, const SharedBucket& ours, Wait& wait) {
    const auto exchange = [&](const SharedSwap& swap) {
        wait.over_hosts(*between_, [&](auto /*limit*/) {
            between_->begin(swap);
            return true;
        });
        wait.over_hosts(*between_, [&](auto limit) { return between_->wait(limit); });
    };
    const Element element = ours.sum.element;
    std::byte* const values = ours.block->data() + ours.offset + part.begin;
    ours.wire->round(values, element, part.bytes / size_of(element), between_->names().size(),
                     between_->home());
    exchange(ours.wire->values_to_swap());
    ours.wire->add_up();
    if (const auto sums = ours.wire->sums_to_swap()) {
        exchange(*sums);
    }
    ours.wire->widen(values, element);
}

void SharedExchange::hand_out(std::uint64_t number, const Part& part, const std::vector<std::byte*>& buckets,
                              Wait& wait) {
    {
        const AtBuckets here(*this, number);
        if (here.one_has_failed()) {
            throw failed_error(failed());
        }
        for (std::size_t rank = 0; rank < ranks(); ++rank) {
            if (rank != rank_) {
                std::memcpy(buckets[rank] + part.begin, buckets[rank_] + part.begin, part.bytes);
            }
        }
    }
    own_.control().handed_out.store(number + 1);
    // As in announce_what_fits(): the others sleep until the last rank has handed out.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (not_handed_out_by(number).empty()) {
        ring_all();
    }
    wait.until([&] { return not_handed_out_by(number).empty(); }, [&] { return not_handed_out_by(number); },
               true, follower_error_delay);
}

SharedExchange::Part SharedExchange::own_part(const SharedBucket& bucket) const noexcept {
    const std::uint64_t units = units_of(bucket);
    const std::uint64_t unit = unit_of(bucket.sum.bytes);
    const std::uint64_t begin = first_unit(rank_, ranks(), units) * unit;
    const std::uint64_t end = std::min(first_unit(rank_ + 1, ranks(), units) * unit, bucket.sum.bytes);
    return {.begin = begin, .bytes = end - begin};
}

SharedExchange::Ranks SharedExchange::not_handed_out_by(std::uint64_t number) const {
    Ranks result;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (control(rank).handed_out.load() < number + 1) {
            result.push_back(rank);
        }
    }
    return result;
}

}  // namespace ddpdiag
