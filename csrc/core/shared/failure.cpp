#include "core/shared/failure.hpp"

#include <algorithm>

namespace ddpdiag {
namespace {

constexpr unsigned origin_at = 8;
constexpr unsigned seconds_at = 32;
constexpr std::uint64_t most_seconds = 0xffffffffU;

}  // namespace

std::uint64_t bits_of(const std::vector<std::size_t>& ranks) noexcept {
    std::uint64_t bits = 0;
    for (const std::size_t rank : ranks) {
        bits |= std::uint64_t{1} << rank;
    }
    return bits;
}

void show(SharedControl& control, const SharedFailure& failure) noexcept {
    control.blamed.store(failure.blamed);
    control.failure.store(static_cast<std::uint64_t>(failure.cause) | failure.origin << origin_at |
                          std::min(failure.seconds, most_seconds) << seconds_at);
}

SharedFailure shown(const SharedControl& control, std::size_t rank, std::size_t ranks) noexcept {
    const std::uint64_t word = control.failure.load();
    const std::uint64_t cause = word & 0xffU;
    const std::uint64_t origin = word >> origin_at & 0xffU;
    const std::uint64_t known =
        ranks < most_shared_ranks ? (std::uint64_t{1} << ranks) - 1 : ~std::uint64_t{0};
    if (cause > last_cause || origin >= ranks) {
        return {.cause = FailureCause::own, .origin = rank};
    }
    return {.cause = static_cast<FailureCause>(cause),
            .origin = origin,
            .seconds = word >> seconds_at,
            .blamed = control.blamed.load() & known};
}

}  // namespace ddpdiag
