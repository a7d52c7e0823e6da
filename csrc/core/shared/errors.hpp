// Why a bucket is not averaged, in words, and who is to blame for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/shared/between.hpp"
#include "core/shared/board.hpp"
#include "core/shared/failure.hpp"

namespace ddpdiag {

// The text names the ranks that are to blame. No bucket of this exchange is averaged any more.
class SharedExchangeError : public std::runtime_error {
public:
    explicit SharedExchangeError(const std::string& text, const SharedFailure& failure = {},
                                 std::chrono::milliseconds secondary_error_delay = {}, bool in_use = false)
        : std::runtime_error(text),
          failure_(failure),
          secondary_error_delay_(secondary_error_delay),
          in_use_(in_use) {}
    [[nodiscard]] const SharedFailure& failure() const noexcept { return failure_; }
    // Where there are several hosts: how long to listen for the reason of a rank that may know it better.
    [[nodiscard]] std::chrono::milliseconds secondary_error_delay() const noexcept {
        return secondary_error_delay_;
    }
    // Others may still read the bucket's block and write to it, for nobody knows how long: its bytes must stay as they
    // are, and it must not be used for anything else.
    [[nodiscard]] bool in_use() const noexcept { return in_use_; }

private:
    SharedFailure failure_;
    std::chrono::milliseconds secondary_error_delay_;
    bool in_use_;
};

// Of errors that follow from those of other ranks, which are to be first: of a connection, of the ranks of the own host.
inline constexpr std::chrono::milliseconds connection_error_delay{1000};
inline constexpr std::chrono::milliseconds follower_error_delay{2000};

// `ranks` have ended, one at least.
[[nodiscard]] SharedExchangeError ended_error(const Board& board, const Ranks& ranks);
// Why one of these, which have failed, has.
[[nodiscard]] SharedExchangeError failed_error(const Board& board, const Ranks& ranks);
// These have left, one at least, before they have brought the bucket.
[[nodiscard]] SharedExchangeError left_error(const Board& board, const Ranks& ranks);
// Throws SharedExchangeError: `name` brings something else than we do. `blamed`: see SharedFailure.
void require_same(const Board& board, const BucketKey& ours, const std::string& name, const BucketKey& theirs,
                  std::uint64_t blamed = 0);

}  // namespace ddpdiag
