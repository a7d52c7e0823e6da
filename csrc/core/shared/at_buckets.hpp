// While a rank of a SharedExchange touches other ranks' buckets; only for its own files.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/shared/exchange.hpp"

namespace ddpdiag {

// The others see it as long as it lives. Before anything is touched, it must be asked whether a rank has failed: either
// that rank waits for us, or we see that it has (SharedExchange::stand_down).
class SharedExchange::AtBuckets {
public:
    AtBuckets(const SharedExchange& exchange, std::uint64_t number) : exchange_(&exchange) {
        exchange.own_.control().busy.store(number + 1);
    }
    AtBuckets(const AtBuckets&) = delete;
    AtBuckets& operator=(const AtBuckets&) = delete;
    ~AtBuckets() { exchange_->own_.control().busy.store(0); }

    // Also after something was read: if none has, it was what all ranks brought. A rank changes its bucket only after it
    // has said that it has failed.
    [[nodiscard]] bool one_has_failed() const noexcept {
        std::atomic_thread_fence(std::memory_order_acquire);
        return exchange_->one_has_failed();
    }

private:
    const SharedExchange* exchange_;
};

}  // namespace ddpdiag
