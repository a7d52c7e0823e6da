// Everything about a bucket that doesn't change from step to step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/trace/record.hpp"

namespace ddpdiag {

struct ModuleState;

struct BucketLayout {
    std::uint64_t identity = 0;
    std::uint32_t index = 0;
    std::uint64_t bytes = 0;
    Dtype dtype = Dtype::other;
    std::vector<std::uint32_t> parameters;  // indices into the module's, in the order of the flat buffer
    std::vector<std::uint64_t> ends;        // where each parameter's elements end in the flat buffer
    std::shared_ptr<ModuleState> module;
};

}  // namespace ddpdiag
