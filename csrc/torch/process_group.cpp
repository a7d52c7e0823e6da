#include "torch/process_group.hpp"

#include <utility>

#include "core/hash.hpp"

namespace ddpdiag {

Group::Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group, std::string group_name)
    : handle(std::move(process_group)),
      name(std::move(group_name)),
      id(fnv1a(name)),
      rank(handle->getRank()),
      size(handle->getSize()) {}

std::string backend_name(c10d::ProcessGroup& group, c10::DeviceType device) {
    try {
        return group.getBackend(device)->getBackendName();
    } catch (const c10::Error&) {
        return {};
    }
}

}  // namespace ddpdiag
