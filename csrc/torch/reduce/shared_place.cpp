#include "torch/reduce/shared_place.hpp"

#include <utility>

#include "torch/element.hpp"
#include "torch/reduce/shared_storage.hpp"

namespace ddpdiag {

c10::intrusive_ptr<c10::ivalue::Future> SharedPlace::average(SharedRanks& ranks, const at::Tensor& buffer,
                                                             std::uint64_t sequence, bool divided,
                                                             std::shared_ptr<StartListener> start) {
    // Looked at each time: whoever has the tensor may have given it other memory.
    auto block = shared_block_of(buffer);
    if (block == nullptr) {
        block = move_to_shared_memory(buffer);
    }
    if (block->id() != block_) {
        place_ = ranks.enter(block);
        block_ = block->id();
    }
    const auto offset = static_cast<std::uint64_t>(buffer.storage_offset()) * buffer.itemsize();
    return ranks.average(buffer,
                         {.block = std::move(block),
                          .place = place_,
                          .offset = offset,
                          .sequence = sequence,
                          .sum = {.element = known_element(buffer.scalar_type()),
                                  .bytes = buffer.nbytes(),
                                  .average = !divided},
                          .wire = wire_},
                         std::move(start));
}

}  // namespace ddpdiag
