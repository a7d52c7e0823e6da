#include "torch/probe/module_identity.hpp"

#include <algorithm>
#include <utility>

namespace ddpdiag {

ModuleIdentity::ModuleIdentity(std::uint32_t index, std::shared_ptr<Group> group,
                               const std::vector<at::Tensor>& parameters, std::vector<std::string> names,
                               std::weak_ptr<c10d::Reducer> reducer)
    : index_(index),
      group_(std::move(group)),
      names_(std::move(names)),
      reducer_(std::move(reducer)),
      anonymous_(parameters.empty()) {
    static_cast<void>(indices_of(parameters));
}

std::shared_ptr<c10d::Reducer> ModuleIdentity::reducer() const {
    const std::lock_guard lock(mutex_);
    return reducer_.lock();
}

void ModuleIdentity::set_reducer(std::weak_ptr<c10d::Reducer> reducer) {
    const std::lock_guard lock(mutex_);
    reducer_ = std::move(reducer);
}

bool ModuleIdentity::owns_one_of(const std::vector<at::Tensor>& parameters) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(parameters, [this](const at::Tensor& parameter) {
        return parameters_.contains(parameter.unsafeGetTensorImpl());
    });
}

std::vector<std::uint32_t> ModuleIdentity::indices_of(const std::vector<at::Tensor>& parameters) {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint32_t> indices;
    indices.reserve(parameters.size());
    for (const at::Tensor& parameter : parameters) {
        const auto [entry, added] = parameters_.try_emplace(parameter.unsafeGetTensorImpl(),
                                                            static_cast<std::uint32_t>(parameters_.size()));
        if (added) {
            pinned_.emplace_back(parameter.getIntrusivePtr());
        }
        indices.push_back(entry->second);
    }
    return indices;
}

}  // namespace ddpdiag
