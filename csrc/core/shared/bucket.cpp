#include "core/shared/bucket.hpp"

#include <string>

namespace ddpdiag {

Announced SharedBucket::announced() const noexcept {
    Announced result{.sequence = sequence,
                     .bytes = sum.bytes,
                     .kind = kind_of(sum, wire.get()),
                     .offset = offset,
                     .place = place,
                     .id = block->id(),
                     .memory_bytes = block->memory().size(),
                     .watched = watched ? 1U : 0U};
    const std::string& name = block->memory().name();
    name.copy(reinterpret_cast<char*>(result.name.data()), sizeof result.name);
    return result;
}

}  // namespace ddpdiag
