#include "core/shared_sum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/finite.hpp"
#include "core/half.hpp"
#include "core/ring_order.hpp"

namespace ddpdiag {
namespace {

// So few values that the sums stay in the first-level cache until they are in all buckets.
constexpr std::size_t block = 1024;

// How each type is read and written; sums are of type Sum.
struct F32 {
    using Value = float;
    using Sum = float;
    static Sum load(Value value) noexcept { return value; }
    static Value store(Sum sum) noexcept { return sum; }
};
struct F64 {
    using Value = double;
    using Sum = double;
    static Sum load(Value value) noexcept { return value; }
    static Value store(Sum sum) noexcept { return sum; }
};
struct F16 {
    using Value = std::uint16_t;
    using Sum = float;
    static Sum load(Value value) noexcept { return f32_of_f16(value); }
    static Value store(Sum sum) noexcept { return f16_of_f32(sum); }
};
struct Bf16 {
    using Value = std::uint16_t;
    using Sum = float;
    static Sum load(Value value) noexcept { return f32_of_bf16(value); }
    static Value store(Sum sum) noexcept { return bf16_of_f32(sum); }
};

// By 1, which changes nothing, or by the number of ranks. A power of two may be multiplied: the bits are the same.
template <typename Type>
class Divided {
public:
    using Sum = Type::Sum;

    Divided(std::size_t ranks, bool average) noexcept
        : divisor_(average ? static_cast<Sum>(ranks) : Sum{1}),
          factor_(Sum{1} / divisor_),
          exact_(!average || std::has_single_bit(ranks)) {}

    void first(const Type::Value* values, Sum* sums, std::size_t count) const noexcept {
        for (std::size_t i = 0; i < count; ++i) {
            sums[i] = exact_ ? Type::load(values[i]) * factor_ : Type::load(values[i]) / divisor_;
        }
    }
    void add(const Type::Value* values, Sum* sums, std::size_t count) const noexcept {
        for (std::size_t i = 0; i < count; ++i) {
            sums[i] += exact_ ? Type::load(values[i]) * factor_ : Type::load(values[i]) / divisor_;
        }
    }

private:
    Sum divisor_;
    Sum factor_;
    bool exact_;
};

template <typename Sum>
bool all_finite(const Sum* sums, std::size_t count) noexcept {
    AllFinite<Sum> finite;
    for (std::size_t i = 0; i < count; ++i) {
        finite.see(sums[i]);
    }
    return finite.so_far();
}

template <typename Type>
Type::Value* values_of(std::byte* bucket, std::uint64_t at) noexcept {
    return reinterpret_cast<Type::Value*>(bucket + at);
}

// Whose values made a sum that is not finite: nobody's, where it has overflowed.
template <typename Type>
void blame(std::span<std::byte* const> buckets, std::uint64_t at, std::size_t count,
           std::span<NotFinite> found) noexcept {
    for (std::size_t rank = 0; rank < buckets.size(); ++rank) {
        const auto* const values = values_of<Type>(buckets[rank], at);
        for (std::size_t i = 0; i < count; ++i) {
            if (!std::isfinite(Type::load(values[i]))) {
                ++found[rank].values;
                found[rank].first = std::min(found[rank].first, at / sizeof(typename Type::Value) + i);
            }
        }
    }
}

// Within one chunk of the ring.
template <typename Type>
void sum_in_chunk(std::span<std::byte* const> buckets, std::span<std::byte* const> targets, std::size_t chunk,
                  std::uint64_t begin, std::uint64_t end, const Divided<Type>& divided,
                  std::span<NotFinite> found) noexcept {
    using Value = Type::Value;
    // Not initialised: that would be a pass over the cache for nothing.
    std::array<typename Type::Sum, block> sums;  // NOLINT(*-pro-type-member-init)
    std::array<Value, block> rounded;            // NOLINT(*-pro-type-member-init)
    for (std::uint64_t at = begin; at < end; at += block * sizeof(Value)) {
        const auto count = std::min<std::size_t>(block, static_cast<std::size_t>(end - at) / sizeof(Value));
        for (std::size_t position = 0; position < buckets.size(); ++position) {
            const Value* const values =
                values_of<Type>(buckets[ring_addend(chunk, position, buckets.size())], at);
            if (position == 0) {
                divided.first(values, sums.data(), count);
            } else {
                divided.add(values, sums.data(), count);
            }
        }
        if (!found.empty() && !all_finite(sums.data(), count)) {
            blame<Type>(buckets, at, count, found);
        }
        for (std::size_t i = 0; i < count; ++i) {
            rounded[i] = Type::store(sums[i]);
        }
        for (std::byte* const target : targets) {
            std::memcpy(target + at, rounded.data(), count * sizeof(Value));
        }
    }
}

template <typename Type>
void sum(const SharedSum& all, std::span<std::byte* const> buckets, std::span<std::byte* const> targets,
         std::uint64_t begin, std::uint64_t end, std::span<NotFinite> found) noexcept {
    const Divided<Type> divided(buckets.size() * all.hosts, all.average);
    const std::uint64_t chunk_bytes = ring_chunk_bytes(all.bytes, size_of(all.element), buckets.size());
    while (begin < end) {
        const std::uint64_t chunk = begin / chunk_bytes;
        const std::uint64_t chunk_end = std::min(end, (chunk + 1) * chunk_bytes);
        sum_in_chunk<Type>(buckets, targets, static_cast<std::size_t>(chunk), begin, chunk_end, divided,
                           found);
        begin = chunk_end;
    }
}

}  // namespace

void SharedSum::run(std::span<std::byte* const> buckets, std::span<std::byte* const> targets,
                    std::uint64_t begin, std::uint64_t end, std::span<NotFinite> found) const noexcept {
    switch (element) {
        case Element::f32:
            sum<F32>(*this, buckets, targets, begin, end, found);
            break;
        case Element::f64:
            sum<F64>(*this, buckets, targets, begin, end, found);
            break;
        case Element::f16:
            sum<F16>(*this, buckets, targets, begin, end, found);
            break;
        case Element::bf16:
            sum<Bf16>(*this, buckets, targets, begin, end, found);
            break;
    }
}

}  // namespace ddpdiag
