// Which module it is: its index in the recorder, its group, its parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "torch/group.hpp"

namespace c10d {
class Reducer;
}

namespace ddpdiag {

// For any thread: only the table of parameters changes, and it has a mutex.
class ModuleIdentity {
public:
    // `names`: of the parameters, in the order of named_parameters(). `reducer`: that of a DDP module.
    ModuleIdentity(std::uint32_t index, std::shared_ptr<Group> group,
                   const std::vector<at::Tensor>& parameters, std::vector<std::string> names,
                   std::weak_ptr<c10d::Reducer> reducer);

    [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
    [[nodiscard]] const std::shared_ptr<Group>& group() const noexcept { return group_; }
    [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
    // nullptr: it has none, or is gone.
    [[nodiscard]] std::shared_ptr<c10d::Reducer> reducer() const;
    // DDP has another reducer, since between two passes.
    void set_reducer(std::weak_ptr<c10d::Reducer> reducer);
    // The module was not found, only its buckets were: parameters are numbered as they appear.
    [[nodiscard]] bool anonymous() const noexcept { return anonymous_; }

    [[nodiscard]] bool owns_one_of(const std::vector<at::Tensor>& parameters) const;
    // The parameters' indices in this module; an unknown one gets the next.
    [[nodiscard]] std::vector<std::uint32_t> indices_of(const std::vector<at::Tensor>& parameters);

private:
    std::uint32_t index_;
    std::shared_ptr<Group> group_;
    std::vector<std::string> names_;
    std::weak_ptr<c10d::Reducer> reducer_;
    bool anonymous_;
    mutable std::mutex mutex_;
    std::unordered_map<const c10::TensorImpl*, std::uint32_t> parameters_;
    // Weak, so that no parameter of another module can get the same address while this one is known.
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> pinned_;
};

}  // namespace ddpdiag
