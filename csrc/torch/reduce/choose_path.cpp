#include "torch/reduce/choose_path.hpp"

#include <utility>

#include "torch/element.hpp"
#include "torch/reduce/lanes/path.hpp"
#include "torch/reduce/plain_path.hpp"
#include "torch/reduce/shared/path.hpp"
#include "torch/reduce/sixteen_bit/path.hpp"

namespace ddpdiag {

std::shared_ptr<Path> choose_path(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
                                  const PathOptions& options) {
    const auto type =
        options.compression == Compression::bf16 ? c10::ScalarType::BFloat16 : c10::ScalarType::Half;
    const bool compresses = options.compression != Compression::none && SixteenBitPath::possible(buffer);
    if (options.shared != nullptr && SharedPath::possible(buffer)) {
        if (compresses && options.shared->several_hosts()) {
            auto wire = std::make_shared<SharedWire>(known_element(type), options.error_feedback);
            return std::make_shared<SharedPath>(buffer, group, options.shared, std::move(wire));
        }
        return std::make_shared<SharedPath>(buffer, group, options.shared, options.divided_by);
    }
    if (compresses) {
        return std::make_shared<SixteenBitPath>(buffer, group, type, options.error_feedback);
    }
    if (options.lanes != nullptr && LaneParts::possible(buffer)) {
        return std::make_shared<LanesPath>(buffer, group, options.lanes, options.divided_by);
    }
    return std::make_shared<PlainPath>(buffer, group, options.divided_by);
}

}  // namespace ddpdiag
