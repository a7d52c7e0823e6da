#include "core/shared_announcement.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace ddpdiag {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

const char* element_name(std::uint64_t kind) noexcept {
    constexpr std::array<const char*, 4> names = {"float32", "float64", "float16", "bfloat16"};
    const std::uint64_t element = kind & 0xffU;
    return element < names.size() ? names[element] : "an unknown type";
}

}  // namespace

std::string Announced::block_name() const {
    std::array<char, sizeof name> text{};
    std::memcpy(text.data(), name.data(), sizeof name);
    return {text.data(), std::ranges::find(text, '\0')};
}

std::string described(const Told& bucket) {
    const auto [sequence, bytes, kind] = bucket;
    return "bucket " + std::to_string(sequence) + " of the group, " + std::to_string(bytes) + " bytes of " +
           element_name(kind) + ((kind & 0x100U) != 0 ? "" : ", divided before");
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
    to.not_finite.store(0, relaxed);
    to.first_not_finite.store(no_index, relaxed);
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

void add(Announcement& to, const NotFinite& found) noexcept {
    to.not_finite.fetch_add(found.values, relaxed);
    std::uint64_t first = to.first_not_finite.load(relaxed);
    while (found.first < first && !to.first_not_finite.compare_exchange_weak(first, found.first, relaxed)) {
    }
}

NotFinite found_in(const Announcement& from) noexcept {
    return {.values = from.not_finite.load(relaxed), .first = from.first_not_finite.load(relaxed)};
}

}  // namespace ddpdiag
