#include "torch/group.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <stdexcept>
#include <utility>

#include "core/trace/hash.hpp"

namespace ddpdiag {

Peers::Peers(std::vector<std::string> hosts, const std::shared_ptr<OwnBackend>& messages)
    : hosts_(std::move(hosts)),
      on_one_host_(std::ranges::adjacent_find(hosts_, std::ranges::not_equal_to{}) == hosts_.end()),
      has_messages_(messages != nullptr),
      messages_(messages) {}

c10::intrusive_ptr<c10d::Backend> Peers::messages() const {
    auto backend = OwnBackend::of(messages_);
    if (backend == nullptr) {
        throw std::runtime_error(
            "pyddpdiag: the process group for messages between the ranks was destroyed, but a bucket is "
            "still to be "
            "reduced by it.");
    }
    return backend;
}

Group::Group(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group)
    : handle(process_group),
      name(process_group->getGroupName()),
      id(fnv1a(name)),
      rank(process_group->getRank()),
      size(process_group->getSize()) {}

c10::intrusive_ptr<c10d::ProcessGroup> Group::lock() const {
    auto group = handle.lock();
    if (!group) {
        throw std::runtime_error("pyddpdiag: the process group '" + name +
                                 "' was destroyed, but a bucket is still to be reduced over it.");
    }
    return group;
}

std::shared_ptr<const Peers> KnownPeers::get() const {
    const std::lock_guard lock(mutex_);
    return peers_;
}

void KnownPeers::set(std::shared_ptr<const Peers> peers) {
    const std::lock_guard lock(mutex_);
    peers_ = std::move(peers);
}

std::string backend_name(c10d::ProcessGroup& group, c10::DeviceType device) {
    try {
        return group.getBackend(device)->getBackendName();
    } catch (const c10::Error&) {
        return {};
    }
}

std::optional<std::uint64_t> collectives_begun(c10d::ProcessGroup& group) {
    try {
        return group.getSequenceNumberForGroup();
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

}  // namespace ddpdiag
