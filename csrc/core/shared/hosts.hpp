// Buckets of several hosts, each with several ranks that share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/shared/between.hpp"
#include "core/shared/board.hpp"
#include "core/shared/bucket.hpp"
#include "core/shared/mapped_buckets.hpp"
#include "core/shared/wait.hpp"

namespace ddpdiag {

// The ranks of each host sum a bucket into one of them, a part into each; then each rank adds up its part with those of
// the other hosts, and copies the sum into the buckets of all ranks of its host. One operation.
class HostsSum {
public:
    HostsSum(const Board& board, SharedBetween& between, const Wait& wait, std::uint64_t number,
             const SharedBucket& ours);

    // Returns when the bucket holds the average. Throws SharedExchangeError.
    void complete(MappedBuckets& mapped);

private:
    // What a rank carries of a bucket: nothing, where there are fewer units than ranks.
    struct Part {
        std::uint64_t begin;
        std::uint64_t bytes;
    };
    [[nodiscard]] Part own_part() const noexcept;
    void sum_up(const std::vector<std::byte*>& buckets);
    // Adds up our part with those of the other hosts, whose ranks must say that they bring the same.
    void add_up();
    void add_up_in_16_bits();
    // Begins something between the hosts, and waits for it.
    void over_hosts(const std::function<void()>& begin);
    // Copies our part into the buckets of this host, and waits until its other ranks have done so.
    void hand_out(const std::vector<std::byte*>& buckets);

    const Board* board_;
    SharedBetween* between_;
    const Wait* wait_;
    std::uint64_t number_;
    const SharedBucket* ours_;
    Part part_;
};

}  // namespace ddpdiag
