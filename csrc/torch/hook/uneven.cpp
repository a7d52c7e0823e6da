#include "torch/hook/uneven.hpp"

#include <memory>

#include "torch/hook/reducer_parts.hpp"

namespace ddpdiag {

void count_ranks_left(ModuleState& module) {
    std::int64_t& left = module.hook.ranks_left;
    left = 0;
    if (const auto reducer = module.identity.reducer()) {
        // DDP has set it before it runs the hook. It is below 1 where join() runs a hook for a rank that has left, which
        // adds zeros.
        const std::int64_t divisor = ReducerParts::divisor(*reducer);
        if (divisor > 0 && divisor < module.identity.group()->size) {
            left = divisor;
        }
    }
}

PathOptions for_ranks_left(const ModuleState& module, const at::Tensor& buffer, const PathOptions& options) {
    const std::int64_t left = module.hook.ranks_left;
    if (left == 0) {
        return options;
    }
    PathOptions result = options;
    if (options.compression == Compression::none && options.shared == nullptr) {
        if (buffer.is_sparse()) {
            buffer.div_(left);
        } else {
            buffer.mul_(1.0 / static_cast<double>(left));
        }
        result.divided_by = left;
    } else {
        // These divide by the size of the group while they copy, also on the ranks that have left.
        buffer.mul_(static_cast<double>(module.identity.group()->size) / static_cast<double>(left));
    }
    return result;
}

}  // namespace ddpdiag
