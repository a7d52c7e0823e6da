#include "torch/parallel_copy.hpp"

#include <ATen/Parallel.h>

#include <atomic>

namespace ddpdiag {

std::uint64_t copy_in_parallel(const void* source, Element from, void* target, Element to, std::size_t count,
                               double scale) {
    std::atomic<std::uint64_t> non_finite{0};
    at::parallel_for(
        0, static_cast<std::int64_t>(count), parallel_grain, [&](std::int64_t begin, std::int64_t end) {
            const auto first = static_cast<std::size_t>(begin);
            const auto found = fused_copy(static_cast<const std::byte*>(source) + first * size_of(from), from,
                                          static_cast<std::byte*>(target) + first * size_of(to), to,
                                          static_cast<std::size_t>(end - begin), scale, /*streaming=*/false);
            non_finite.fetch_add(found.non_finite, std::memory_order_relaxed);
        });
    return non_finite.load(std::memory_order_relaxed);
}

}  // namespace ddpdiag
