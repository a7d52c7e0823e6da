// The way between hosts, where several have ranks that share memory.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/kernels/fused_copy.hpp"
#include "core/shared/block.hpp"

namespace ddpdiag {

class SharedBetweenError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// What has to be the same on all hosts for their parts of a bucket to be added up: see Announced::key.
using BucketKey = std::array<std::uint64_t, 3>;

// So many values, from one of them on.
struct Range {
    std::size_t begin = 0;
    std::size_t count = 0;
};

// Values of 16 bits that go to each host and come from it: where they lie among `values`, by host. No stretch that
// comes overlaps another one; none goes to the own host.
struct SharedSwap {
    std::shared_ptr<std::vector<std::uint16_t>> values;
    std::vector<Range> sent;
    std::vector<Range> received;
};

// Of one rank, which carries a part of each bucket: it adds that up with one rank of each other host. For one thread.
class SharedBetween {
public:
    SharedBetween() = default;
    SharedBetween(const SharedBetween&) = delete;
    SharedBetween& operator=(const SharedBetween&) = delete;
    virtual ~SharedBetween() = default;

    // The ranks that carry the same part, by host, and those of them on the other hosts in one text.
    [[nodiscard]] virtual const std::vector<std::string>& names() const noexcept = 0;
    [[nodiscard]] virtual const std::string& others() const noexcept = 0;
    // Our own host.
    [[nodiscard]] virtual std::size_t home() const noexcept = 0;
    // Begins to tell these ranks what this one brings, before begin(). Throws SharedBetweenError.
    virtual void tell(const BucketKey& ours) = 0;
    // The key that each of them sent, by host; empty: not within `limit`. Throws SharedBetweenError: it will never be there.
    [[nodiscard]] virtual std::vector<BucketKey> keys(std::chrono::milliseconds limit) = 0;
    // Begins the sum of these bytes of the block, in place, in the same order of calls on all hosts. Keeps the
    // block while others may write into it. Throws SharedBetweenError.
    virtual void begin(const std::shared_ptr<const SharedBlock>& block, std::uint64_t offset,
                       std::uint64_t bytes, Element element) = 0;
    // Whether what was begun of a block is still under way: others may read it and write to it.
    [[nodiscard]] virtual bool uses_block() const noexcept = 0;
    // Begins to send and to receive, in the same order of calls on all hosts, whose keys agree on the sizes. Keeps the
    // values as long as it needs them. Throws SharedBetweenError.
    virtual void begin(const SharedSwap& swap) = 0;
    // Waits for what was begun. False: not within `limit`. Throws SharedBetweenError: it will never be there.
    [[nodiscard]] virtual bool wait(std::chrono::milliseconds limit) = 0;
    // The reason of a failure that all ranks of all hosts are to give: that of the first which says one. `secondary_error_delay`: so
    // long, another one may be first. Returns soon after that even if the others cannot be reached.
    [[nodiscard]] virtual std::string agreed(const std::string& reason,
                                             std::chrono::milliseconds secondary_error_delay) noexcept = 0;
    // After a failure: lets go of the connections, so that the other hosts notice. Does not wait.
    virtual void give_up() noexcept = 0;
};

}  // namespace ddpdiag
