#include "platform/linux_shared_pages.hpp"

#include <sys/mman.h>

#include <chrono>
#include <cstdint>

namespace ddpdiag::platform {
namespace {

constexpr std::size_t large_page = std::size_t{2} << 20U;
constexpr std::size_t small_page = std::size_t{64} << 10U;  // the largest that any processor has
// Of one call of use_large_pages(): it takes about 3 ms per MiB, and longer where the kernel has to make room.
constexpr std::chrono::seconds spin_budget{1};

#ifdef MADV_COLLAPSE
constexpr int collapse = MADV_COLLAPSE;
#else
constexpr int collapse = 25;  // the same on every processor
#endif

// As mmap().
void* map(void* at, std::size_t bytes, int descriptor, int more_flags) noexcept {
    return ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | more_flags, descriptor, 0);
}

// To the next multiple of `page`, 0 at one.
std::size_t up_to(std::uintptr_t bytes, std::size_t page) noexcept {
    return (page - bytes % page) % page;
}

}  // namespace

std::size_t paged_bytes(std::size_t bytes) noexcept {
    if (bytes < large_page / 2) {
        return bytes;
    }
    return bytes + up_to(bytes, bytes % large_page >= large_page / 2 ? large_page : small_page);
}

std::byte* map_pages(int descriptor, std::size_t bytes) noexcept {
    const std::size_t length = paged_bytes(bytes);
    if (length < large_page) {
        void* const data = map(nullptr, length, descriptor, 0);
        return data != MAP_FAILED ? static_cast<std::byte*>(data) : nullptr;
    }
    // Room for it wherever a large page begins in there; what is before and behind goes back.
    const std::size_t room = length + large_page;
    void* const at = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return nullptr;
    }
    auto* const begin = static_cast<std::byte*>(at);
    const std::size_t before = up_to(reinterpret_cast<std::uintptr_t>(begin), large_page);
    std::byte* const data = begin + before;
    if (map(data, length, descriptor, MAP_FIXED) == MAP_FAILED) {
        ::munmap(begin, room);
        return nullptr;
    }
    if (before != 0) {
        ::munmap(begin, before);
    }
    ::munmap(data + length, large_page - before);
    return data;
}

void use_large_pages(std::byte* data, std::size_t bytes) noexcept {
    const auto until = std::chrono::steady_clock::now() + spin_budget;
    for (std::size_t at = 0; at + large_page <= paged_bytes(bytes); at += large_page) {
        if (::madvise(data + at, large_page, collapse) != 0 || std::chrono::steady_clock::now() >= until) {
            return;
        }
    }
}

}  // namespace ddpdiag::platform
