// What a rank carries of a bucket, in 16 bits on its way between the hosts (docs/compression.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/kernels/fused_copy.hpp"
#include "core/shared/between.hpp"

namespace ddpdiag {

// Every host owns a shard of the part. It gets the others' values of its shard, adds them in f32 in the order of the
// hosts, rounds the sum once and sends it to all. Two hosts each get the whole part of the other and add by
// themselves: one message instead of two. In both cases all hosts hold the same bits.
//
// That of one bucket, kept from pass to pass. The calls follow in this order, for one thread at a time:
//
//   round, values_to_swap, add_up, sums_to_swap, widen
class SharedWire {
public:
    // `type`: f16 or bf16. `error_feedback`: what the rounding of this host's sum has lost is added to that of the next
    // pass.
    SharedWire(Element type, bool error_feedback);

    [[nodiscard]] Element type() const noexcept { return type_; }
    [[nodiscard]] bool feeds_back() const noexcept { return error_feedback_; }

    // Takes over `count` values of f32, f64 or the wire's own type: this host's sum, into which the residual may be
    // written. `home`: our own of the `hosts`.
    void round(std::byte* part, Element element, std::size_t count, std::size_t hosts, std::size_t home);
    // What each host needs for its shard.
    [[nodiscard]] SharedSwap values_to_swap() const;
    // When that has arrived.
    void add_up();
    // The sums of the shards. Nothing: this host has added up all of them.
    [[nodiscard]] std::optional<SharedSwap> sums_to_swap() const;
    // When they have arrived: back into what round() took, on all hosts with the same bits.
    void widen(std::byte* part, Element element) const;

private:
    [[nodiscard]] bool two_hosts() const noexcept { return hosts_ == 2; }
    // Where a host's shard lies in the part, and where its values for ours arrive.
    [[nodiscard]] Range shard_of(std::size_t host) const noexcept;
    [[nodiscard]] Range arriving_from(std::size_t host) const noexcept;
    void keep_residual(std::byte* part, Element element);

    Element type_;
    bool error_feedback_;
    std::size_t count_ = 0;
    std::size_t hosts_ = 0;
    std::size_t home_ = 0;
    std::shared_ptr<std::vector<std::uint16_t>>
        values_;                       // of the part, and after it what arrives for our shard
    std::vector<std::byte> residual_;  // of the type of the part; empty without error feedback
};

}  // namespace ddpdiag
