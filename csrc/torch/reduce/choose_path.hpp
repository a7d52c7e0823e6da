// Which path a bucket takes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "torch/reduce/path.hpp"

namespace ddpdiag {

class Lanes;
class SharedRanks;

enum class Compression : std::uint8_t { none = 0, bf16 = 1, fp16 = 2 };

// What was decided for a hook or a GradientReducer, the same on all ranks.
struct PathOptions {
    Compression compression = Compression::none;
    // Adds what the last rounding lost to the next step's gradients.
    bool error_feedback = false;
    // The gradients are already divided by this; 0: they are not. Only for paths that do not compress.
    std::int64_t divided_by = 0;
    // The ranks that average in shared memory; nullptr: Gloo does. Only what travels between hosts is compressed.
    std::shared_ptr<SharedRanks> shared = nullptr;
    // The interfaces that carry parts of a bucket at once; nullptr: the group's own connections. Neither with memory that
    // is shared nor with compression.
    std::shared_ptr<Lanes> lanes = nullptr;

    [[nodiscard]] bool operator==(const PathOptions&) const = default;
};

// The options allow paths; the bucket and its group decide: the same answer on all ranks.
[[nodiscard]] std::shared_ptr<Path> choose_path(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
                                                const PathOptions& options);

}  // namespace ddpdiag
