#include "torch/process_group.hpp"

#include <stdexcept>
#include <vector>

#include "core/hash.hpp"

namespace ddpdiag {
namespace {

template <typename Handle>
c10::intrusive_ptr<Handle> locked(const c10::weak_intrusive_ptr<Handle>& handle, const std::string& name) {
    auto group = handle.lock();
    if (!group) {
        throw std::runtime_error("pyddpdiag: the process group '" + name +
                                 "' was destroyed, but a bucket is still to be reduced over it.");
    }
    return group;
}

}  // namespace

Group::Group(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group)
    : handle(process_group),
      name(process_group->getGroupName()),
      id(fnv1a(name)),
      rank(process_group->getRank()),
      size(process_group->getSize()) {}

c10::intrusive_ptr<c10d::ProcessGroup> Group::lock() const {
    return locked(handle, name);
}

c10::intrusive_ptr<c10d::Backend> Group::lock_messages() const {
    return locked(messages, name);
}

c10::intrusive_ptr<c10::ivalue::Future> all_reduce(const Group& group, const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors = {tensor};
    return group.lock()->allreduce(tensors)->getFuture();
}

std::string backend_name(c10d::ProcessGroup& group, c10::DeviceType device) {
    try {
        return group.getBackend(device)->getBackendName();
    } catch (const c10::Error&) {
        return {};
    }
}

}  // namespace ddpdiag
