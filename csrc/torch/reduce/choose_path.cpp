#include "torch/reduce/choose_path.hpp"

#include <utility>

#include "torch/reduce/plain_path.hpp"
#include "torch/reduce/shared_path.hpp"
#include "torch/reduce/sixteen_bit_path.hpp"

namespace ddpdiag {

std::shared_ptr<Path> choose_path(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
                                  const PathOptions& options) {
    if (options.shared_memory && SharedPath::possible(buffer)) {
        // Between hosts, it would be the whole bucket that travels.
        const bool compressed = options.compression != Compression::none;
        if (auto ranks = group->sharing.get(); ranks != nullptr && !(compressed && ranks->several_hosts())) {
            return std::make_shared<SharedPath>(buffer, group, std::move(ranks), options.divided_by);
        }
    }
    if (options.compression != Compression::none && SixteenBitPath::possible(buffer)) {
        const auto type =
            options.compression == Compression::bf16 ? c10::ScalarType::BFloat16 : c10::ScalarType::Half;
        return std::make_shared<SixteenBitPath>(buffer, group, type, options.error_feedback);
    }
    return std::make_shared<PlainPath>(buffer, group, options.divided_by);
}

}  // namespace ddpdiag
