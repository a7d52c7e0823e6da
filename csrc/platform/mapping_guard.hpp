// The guard of mapped files. On Linux, any process may truncate a mapped file; a store beyond its new end then raises
// SIGBUS, which would end the process. The guard replaces the mapping by private memory, so that the store succeeds
// and is lost. It does the same in a forked child, which must not write to its parent's file. Windows needs neither: it
// refuses to truncate a mapped file (ERROR_USER_MAPPED_FILE), and has no fork.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/platform.hpp"

namespace ddpdiag::platform {

// One guarded mapping. A signal handler reads it, so it is never freed, only reused for another mapping.
struct GuardedMapping {
    std::atomic<std::uintptr_t> begin{0};  // 0: not in use
    std::atomic<std::uintptr_t> end{0};
    std::atomic<MappingState> state{MappingState::whole};
    GuardedMapping* next = nullptr;
};

// From here on, the guard handles faults within the mapping. Throws std::bad_alloc.
[[nodiscard]] GuardedMapping* guard(const std::byte* data, std::size_t size);
// Private memory in the mapping's place, if it is not there already.
void give_up(GuardedMapping& mapping) noexcept;
// Call this before unmapping.
void unguard(GuardedMapping& mapping) noexcept;

}  // namespace ddpdiag::platform
