// Large shared memory in pages of 2 MiB instead of 4 KiB, so that its addresses are found at once: sums of 1 MiB take
// two thirds of the time, larger ones nine tenths (docs/shared-memory.md). A kernel without them goes on with small ones.
#pragma once

#include <cstddef>

namespace ddpdiag::platform {

// What is reserved and mapped for so many bytes: whole pages of 2 MiB, unless less than half of the last one is needed.
[[nodiscard]] std::size_t paged_bytes(std::size_t bytes) noexcept;

// Maps paged_bytes(bytes) of a descriptor, from the beginning of a large page on if that is at least one. nullptr: errno
// says why not.
[[nodiscard]] std::byte* map_pages(int descriptor, std::size_t bytes) noexcept;

// Moves what is mapped there into large pages. Linux 6.1 has the call, also where memory of this kind gets none by itself.
void use_large_pages(std::byte* data, std::size_t bytes) noexcept;

}  // namespace ddpdiag::platform
