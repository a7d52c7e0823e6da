// One bucket of ours, to be averaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/shared/announcement.hpp"
#include "core/shared/between.hpp"
#include "core/shared/block.hpp"
#include "core/shared/sum.hpp"
#include "core/shared/wire.hpp"

namespace ddpdiag {

struct SharedBucket {
    std::shared_ptr<const SharedBlock> block;
    std::size_t place = 0;       // of the block, from SharedExchange::enter()
    std::uint64_t offset = 0;    // in the block
    std::uint64_t sequence = 0;  // the same on all ranks, or they are not at the same bucket
    SharedSum sum;               // the same on all ranks
    // For several hosts: their sums travel in 16 bits; nullptr: as they are. The same on all ranks.
    std::shared_ptr<SharedWire> wire = nullptr;
    bool watched = false;  // whoever sums it takes the statistics of what we bring

    // Where its values are.
    [[nodiscard]] std::byte* data() const noexcept { return block->data() + offset; }
    // Buckets can be added up if they agree in this.
    [[nodiscard]] BucketKey key() const noexcept { return {sequence, sum.bytes, kind_of(sum, wire.get())}; }
    // As the other ranks see it.
    [[nodiscard]] Announced announced() const noexcept;
};

}  // namespace ddpdiag
