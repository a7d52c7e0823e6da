// While a rank touches other ranks' buckets.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/shared/board.hpp"

namespace ddpdiag {

// The others see it as long as it lives. Before anything is touched, it must be asked whether a rank has failed: either
// that rank waits for us, or we see that it has (Board::fail).
class AtBuckets {
public:
    AtBuckets(const Board& board, std::uint64_t number) : board_(&board) {
        board.own().busy.store(number + 1);
    }
    AtBuckets(const AtBuckets&) = delete;
    AtBuckets& operator=(const AtBuckets&) = delete;
    ~AtBuckets() { board_->own().busy.store(0); }

    // Also after something was read: if none has, it was what all ranks brought. A rank changes its bucket only after it
    // has said that it has failed.
    [[nodiscard]] bool one_has_failed() const noexcept {
        std::atomic_thread_fence(std::memory_order_acquire);
        return board_->one_has_failed();
    }

private:
    const Board* board_;
};

}  // namespace ddpdiag
