// Which blocks of shared memory are in use: ours, and those of the others that we have mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/shared/announcement.hpp"
#include "core/shared/block.hpp"
#include "core/shared/layout.hpp"

namespace ddpdiag {

// Ours, as the others see them.
class OwnPlaces {
public:
    explicit OwnPlaces(SharedControl& control) : control_(&control), blocks_(shared_places) {}

    // The block's place until it is gone. Places of blocks that are gone are given up. Throws std::runtime_error if
    // no place is left.
    [[nodiscard]] std::size_t enter(const std::shared_ptr<const SharedBlock>& block);

private:
    SharedControl* control_;
    std::vector<std::weak_ptr<const SharedBlock>> blocks_;
};

// Those of one other rank.
class PeerPlaces {
public:
    explicit PeerPlaces(SharedControl& control) : control_(&control), blocks_(shared_places) {}

    // Where the announced bucket begins; its bytes are mapped. Mapped at its first turn; blocks that are gone by
    // then are let go of. Throws platform::SystemError if there is no such block, or the bucket does not lie in it.
    [[nodiscard]] std::byte* bucket(const Announced& announced);

private:
    SharedControl* control_;
    std::vector<std::unique_ptr<PeerBlock>> blocks_;
};

}  // namespace ddpdiag
