// All differences between the supported torch minors, 2.11 to 2.13.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace ddpdiag {

// The thread-local slots that carry our operation, and the number of its group, from the caller to the Gloo worker
// thread. Newer torch lets everyone own a slot; the enumeration in older versions has none to spare except those kept for tests.
#if defined(TORCH_VERSION_MINOR) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)
inline constexpr std::string_view operation_slot_name = "PYDDPDIAG_OPERATION";
inline const c10::DebugInfoKind operation_slot(&operation_slot_name);
inline constexpr std::string_view group_slot_name = "PYDDPDIAG_GROUP";
inline const c10::DebugInfoKind group_slot(&group_slot_name);
#else
inline constexpr c10::DebugInfoKind operation_slot = c10::DebugInfoKind::TEST_INFO_2;
inline constexpr c10::DebugInfoKind group_slot = c10::DebugInfoKind::TEST_INFO;
#endif

// Sends parts of `input` with the given numbers of values to each rank, and receives theirs into `output`.
inline c10::intrusive_ptr<c10d::Work> all_to_all(c10d::ProcessGroup& group, at::Tensor& output,
                                                 at::Tensor& input, std::vector<std::int64_t>& receives,
                                                 std::vector<std::int64_t>& sends) {
#if defined(TORCH_VERSION_MINOR) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)
    return group.all_to_all_single(output, input, receives, sends);
#else
    return group.alltoall_base(output, input, receives, sends);
#endif
}

}  // namespace ddpdiag
