// fused_copy, divided among torch's threads. The statistics are the same to the last bit, however many threads there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kernels/fused_copy.hpp"

namespace ddpdiag {

// Statistics are taken in parts of this many values and added in order: the sums are the same to the last bit
// with any number of threads.
inline constexpr std::int64_t values_per_part = 65536;

struct Part {
    const std::byte* source;
    std::byte* target;
    std::int64_t begin;  // in the order of all values of all tensors
    std::int64_t count;
    std::size_t tensor;
    std::int64_t offset;  // in its tensor
    Element from;
    Element to;
};

// Appends the parts of one tensor that are to be copied.
void add_parts(std::vector<Part>& parts, const std::byte* source, Element from, std::byte* target, Element to,
               std::int64_t count, std::size_t tensor);

// The statistics of each part.
std::vector<GradientStatistics> copy_parts(const std::vector<Part>& parts, double scale, bool streaming);

// One vector; its statistics.
GradientStatistics copy_in_parallel(const void* source, Element from, void* target, Element to,
                                    std::size_t count, double scale);

}  // namespace ddpdiag
