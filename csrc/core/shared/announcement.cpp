#include "core/shared/announcement.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace ddpdiag {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

// Of what kind_of() says. The lowest byte is that of the bucket's type; that of the wire is one more, 0: none.
constexpr std::uint64_t averages = 0x100;
constexpr std::uint64_t feeds_back = 0x200;
constexpr unsigned wire_at = 16;

const char* element_name(std::uint64_t element) noexcept {
    constexpr std::array<const char*, 4> names = {"float32", "float64", "float16", "bfloat16"};
    return element < names.size() ? names[element] : "an unknown type";
}

// Empty: as they are.
std::string wire_in_words(std::uint64_t kind) {
    const std::uint64_t wire = kind >> wire_at;
    if (wire == 0) {
        return {};
    }
    return std::string(", in ") + element_name(wire - 1) + " between hosts" +
           ((kind & feeds_back) != 0 ? " with error feedback" : "");
}

constexpr std::uint64_t bits_of(double value) noexcept {
    return std::bit_cast<std::uint64_t>(value);
}

double value_of(const std::atomic<std::uint64_t>& bits) noexcept {
    return std::bit_cast<double>(bits.load(relaxed));
}

// Puts `next(value)` in the place of the value there.
template <typename Next>
void change(std::atomic<std::uint64_t>& bits, const Next& next) noexcept {
    std::uint64_t seen = bits.load(relaxed);
    while (!bits.compare_exchange_weak(seen, bits_of(next(std::bit_cast<double>(seen))), relaxed)) {
    }
}

}  // namespace

std::string Announced::block_name() const {
    std::array<char, sizeof name> text{};
    std::memcpy(text.data(), name.data(), sizeof name);
    return {text.begin(), std::ranges::find(text, '\0')};
}

std::string described(const BucketKey& bucket) {
    const auto [sequence, bytes, kind] = bucket;
    return "bucket " + std::to_string(sequence) + " of the group, " + std::to_string(bytes) + " bytes of " +
           element_name(kind & 0xffU) + ((kind & averages) != 0 ? "" : ", divided before") +
           wire_in_words(kind);
}

std::uint64_t kind_of(const SharedSum& sum, const SharedWire* wire) noexcept {
    const std::uint64_t kind = static_cast<std::uint64_t>(sum.element) | (sum.average ? averages : 0U);
    if (wire == nullptr) {
        return kind;
    }
    return kind | (wire->feeds_back() ? feeds_back : 0U) |
           (static_cast<std::uint64_t>(wire->type()) + 1) << wire_at;
}

void write(Announcement& to, std::uint64_t number, const Announced& from) noexcept {
    to.tag.store(0, relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    to.sequence.store(from.sequence, relaxed);
    to.bytes.store(from.bytes, relaxed);
    to.kind.store(from.kind, relaxed);
    to.offset.store(from.offset, relaxed);
    to.place.store(from.place, relaxed);
    to.id.store(from.id, relaxed);
    to.memory_bytes.store(from.memory_bytes, relaxed);
    for (std::size_t i = 0; i < from.name.size(); ++i) {
        to.name[i].store(from.name[i], relaxed);
    }
    to.watched.store(from.watched, relaxed);
    to.not_finite.store(0, relaxed);
    to.first_not_finite.store(no_index, relaxed);
    to.sum_squares.store(bits_of(0.0), relaxed);
    to.absolute_maximum.store(bits_of(0.0), relaxed);
    to.tag.store(number + 1);
}

std::optional<Announced> read(const Announcement& from, std::uint64_t number) noexcept {
    if (from.tag.load(std::memory_order_acquire) != number + 1) {
        return std::nullopt;
    }
    Announced result{.sequence = from.sequence.load(relaxed),
                     .bytes = from.bytes.load(relaxed),
                     .kind = from.kind.load(relaxed),
                     .offset = from.offset.load(relaxed),
                     .place = from.place.load(relaxed),
                     .id = from.id.load(relaxed),
                     .memory_bytes = from.memory_bytes.load(relaxed)};
    for (std::size_t i = 0; i < result.name.size(); ++i) {
        result.name[i] = from.name[i].load(relaxed);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    return from.tag.load(relaxed) == number + 1 ? std::optional(result) : std::nullopt;
}

void add(Announcement& to, const GradientStatistics& found) noexcept {
    to.not_finite.fetch_add(found.non_finite, relaxed);
    std::uint64_t first = to.first_not_finite.load(relaxed);
    while (found.first_non_finite < first &&
           !to.first_not_finite.compare_exchange_weak(first, found.first_non_finite, relaxed)) {
    }
    change(to.sum_squares, [&](double sum) { return sum + found.sum_squares; });
    change(to.absolute_maximum, [&](double most) { return std::max(most, found.absolute_maximum); });
}

GradientStatistics found_in(const Announcement& from) noexcept {
    GradientStatistics result;
    // Which also makes both NaN if one is.
    result.merge({.sum_squares = value_of(from.sum_squares),
                  .absolute_maximum = value_of(from.absolute_maximum),
                  .non_finite = from.not_finite.load(relaxed),
                  .first_non_finite = from.first_not_finite.load(relaxed)},
                 0);
    return result;
}

}  // namespace ddpdiag
