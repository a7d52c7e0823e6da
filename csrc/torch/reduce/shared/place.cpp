#include "torch/reduce/shared/place.hpp"

#include <atomic>
#include <utility>

#include "torch/element.hpp"
#include "torch/reduce/shared/storage.hpp"

namespace ddpdiag {
namespace {

// Looked at each time: whoever has the tensor may have given it other memory.
std::shared_ptr<const SharedBlock> own_block(const at::Tensor& buffer) {
    auto block = shared_block_of(buffer);
    return block != nullptr ? block : move_to_shared_memory(buffer);
}

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> SharedPlace::average(SharedRanks& ranks, const at::Tensor& buffer,
                                                             std::uint64_t sequence, bool divided,
                                                             std::shared_ptr<StartListener> start,
                                                             bool watched) {
    const Element element = known_element(buffer.scalar_type());
    if (wire_ == nullptr && size_of(element) == 2 && ranks.several_hosts()) {
        // In its own type, for the sum: Gloo's would be rounded at each host.
        wire_ = std::make_shared<SharedWire>(element, /*error_feedback=*/false);
    }
    const auto staging = buffer.is_cpu() ? nullptr : idle_staging(buffer);
    auto block = staging != nullptr ? staging->block() : own_block(buffer);
    if (block->id() != block_) {
        place_ = ranks.enter(block);
        block_ = block->id();
    }
    const auto offset = static_cast<std::uint64_t>(buffer.storage_offset()) * buffer.itemsize();
    if (staging != nullptr) {
        staging->take(buffer);
    }
    return ranks.average(buffer,
                         {.block = std::move(block),
                          .place = place_,
                          .offset = staging != nullptr ? 0 : offset,
                          .sequence = sequence,
                          .sum = {.element = element, .bytes = buffer.nbytes(), .average = !divided},
                          .wire = wire_,
                          .watched = watched},
                         std::move(start), staging);
}

// A copy of it is still on its way if somebody else holds it.
const std::shared_ptr<Staging>& SharedPlace::idle_staging(const at::Tensor& buffer) {
    if (staging_ == nullptr || staging_.use_count() != 1 || !staging_->serves(buffer)) {
        staging_ = std::make_shared<Staging>(buffer);
    } else {
        std::atomic_thread_fence(std::memory_order_acquire);  // as idle()
    }
    return staging_;
}

}  // namespace ddpdiag
