#include "core/shared/places.hpp"

#include <stdexcept>
#include <string>

#include "platform/platform.hpp"

namespace ddpdiag {

std::size_t OwnPlaces::enter(const std::shared_ptr<const SharedBlock>& block) {
    std::size_t free = shared_places;
    for (std::size_t place = 0; place < shared_places; ++place) {
        const auto held = blocks_[place].lock();
        if (held == block) {
            return place;
        }
        if (held == nullptr) {
            control_->places[place].store(0, std::memory_order_relaxed);
            free = free == shared_places ? place : free;
        }
    }
    if (free == shared_places) {
        throw std::runtime_error("more than " + std::to_string(shared_places) +
                                 " buckets are alive in shared memory.");
    }
    blocks_[free] = block;
    control_->places[free].store(block->id(), std::memory_order_release);
    return free;
}

std::byte* PeerPlaces::bucket(const Announced& announced) {
    if (announced.place >= shared_places) {
        throw platform::SystemError(platform::Cause::other, "it announced a place that does not exist");
    }
    auto& known = blocks_[static_cast<std::size_t>(announced.place)];
    if (known == nullptr || known->id() != announced.id) {
        for (std::size_t place = 0; place < shared_places; ++place) {
            auto& block = blocks_[place];
            if (block != nullptr && block->id() != control_->places[place].load(std::memory_order_relaxed)) {
                block.reset();
            }
        }
        known = std::make_unique<PeerBlock>(announced.block_name(), announced.memory_bytes, announced.id);
    }
    if (announced.bytes > known->size() || announced.offset > known->size() - announced.bytes ||
        announced.offset % size_of(static_cast<Element>(announced.kind & 0xffU)) != 0) {
        throw platform::SystemError(platform::Cause::other, "its bucket does not lie in its memory");
    }
    return known->data() + announced.offset;
}

}  // namespace ddpdiag
