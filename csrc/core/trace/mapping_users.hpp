// Who may still touch a mapping, so that whoever is the last one gives it up.
#pragma once

#include <atomic>
#include <cstdint>

namespace ddpdiag {

class MappingUsers {
public:
    // False: it was given up, and must not be touched. Otherwise leave() follows, on any thread.
    [[nodiscard]] bool enter() noexcept {
        if ((state_.fetch_add(1, std::memory_order_acquire) & gone) == 0) {
            return true;
        }
        state_.fetch_sub(1, std::memory_order_relaxed);
        return false;
    }
    // True: nobody is left, nobody comes any more, and the caller gives the mapping up.
    [[nodiscard]] bool leave() noexcept {
        return state_.fetch_sub(1, std::memory_order_acq_rel) == closing + 1 && last();
    }
    // It is to be given up when nobody is left; true as from leave().
    [[nodiscard]] bool close() noexcept {
        return state_.fetch_or(closing, std::memory_order_acq_rel) == 0 && last();
    }

private:
    // Above the number of users.
    static constexpr std::uint64_t closing = std::uint64_t{1} << 62U;
    static constexpr std::uint64_t gone = std::uint64_t{1} << 63U;

    bool last() noexcept {
        // Somebody may have come meanwhile, who is then the last one.
        std::uint64_t nobody = closing;
        return state_.compare_exchange_strong(nobody, closing | gone, std::memory_order_acq_rel,
                                              std::memory_order_relaxed);
    }

    std::atomic<std::uint64_t> state_{0};
};

}  // namespace ddpdiag
