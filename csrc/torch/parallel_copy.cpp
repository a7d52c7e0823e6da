#include "torch/parallel_copy.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

namespace ddpdiag {
namespace {

// Values below which another thread costs more than it saves: some 10 us of work.
constexpr std::int64_t grain = 32768;

}  // namespace

void add_parts(std::vector<Part>& parts, const std::byte* source, Element from, std::byte* target, Element to,
               std::int64_t count, std::size_t tensor) {
    const std::int64_t before = parts.empty() ? 0 : parts.back().begin + parts.back().count;
    for (std::int64_t offset = 0; offset < count; offset += values_per_part) {
        const auto at = static_cast<std::size_t>(offset);
        parts.push_back({source + at * size_of(from), target + at * size_of(to), before + offset,
                         std::min(values_per_part, count - offset), tensor, offset, from, to});
    }
}

std::vector<GradientStatistics> copy_parts(const std::vector<Part>& parts, double scale, bool streaming) {
    std::vector<GradientStatistics> results(parts.size());
    const std::int64_t total = parts.empty() ? 0 : parts.back().begin + parts.back().count;
    // Divided by values and not by tensors, so that each thread has as much to do; a part belongs to the thread
    // in whose range it begins.
    at::parallel_for(0, total, grain, [&](std::int64_t begin, std::int64_t end) {
        auto part = std::ranges::lower_bound(parts, begin, {}, &Part::begin);
        for (; part != parts.end() && part->begin < end; ++part) {
            results[static_cast<std::size_t>(part - parts.begin())] =
                fused_copy(part->source, part->from, part->target, part->to,
                           static_cast<std::size_t>(part->count), scale, streaming);
        }
    });
    return results;
}

GradientStatistics copy_in_parallel(const void* source, Element from, void* target, Element to,
                                    std::size_t count, double scale) {
    std::vector<Part> parts;
    add_parts(parts, static_cast<const std::byte*>(source), from, static_cast<std::byte*>(target), to,
              static_cast<std::int64_t>(count), 0);
    const auto of_parts = copy_parts(parts, scale, /*streaming=*/false);
    GradientStatistics result;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        result.merge(of_parts[i], static_cast<std::uint64_t>(parts[i].offset));
    }
    return result;
}

}  // namespace ddpdiag
