// All differences between the supported torch minors, 2.11 to 2.13.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <string_view>

namespace ddpdiag {

// The thread-local slot that carries our operation from the caller to the Gloo worker thread. Newer torch
// lets everyone own a slot; the enumeration of older ones has none to spare but those kept for tests.
#if defined(TORCH_VERSION_MINOR) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)
inline constexpr std::string_view operation_slot_name = "PYDDPDIAG_OPERATION";
inline const c10::DebugInfoKind operation_slot(&operation_slot_name);
#else
inline constexpr c10::DebugInfoKind operation_slot = c10::DebugInfoKind::TEST_INFO_2;
#endif

}  // namespace ddpdiag
