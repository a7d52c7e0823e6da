#include "torch/parallel_copy.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

namespace ddpdiag {
namespace {

// Statistics are taken by parts of this many values and added up in order.
constexpr std::size_t values_per_part = 65536;

}  // namespace

GradientStatistics copy_in_parallel(const void* source, Element from, void* target, Element to,
                                    std::size_t count, double scale) {
    std::vector<GradientStatistics> parts((count + values_per_part - 1) / values_per_part);
    at::parallel_for(
        0, static_cast<std::int64_t>(parts.size()), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const auto part = static_cast<std::size_t>(i);
                const std::size_t first = part * values_per_part;
                parts[part] =
                    fused_copy(static_cast<const std::byte*>(source) + first * size_of(from), from,
                               static_cast<std::byte*>(target) + first * size_of(to), to,
                               std::min(values_per_part, count - first), scale, /*streaming=*/false);
            }
        });
    GradientStatistics result;
    for (std::size_t part = 0; part < parts.size(); ++part) {
        result.merge(parts[part], part * values_per_part);
    }
    return result;
}

}  // namespace ddpdiag
