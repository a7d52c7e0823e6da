// fused_copy, divided among torch's threads.
#pragma once

#include <cstddef>

#include "core/fused_copy.hpp"

namespace ddpdiag {

// The statistics are the same to the last bit, however many threads there are.
GradientStatistics copy_in_parallel(const void* source, Element from, void* target, Element to,
                                    std::size_t count, double scale);

}  // namespace ddpdiag
