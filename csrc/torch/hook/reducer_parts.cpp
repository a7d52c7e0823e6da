#include "torch/hook/reducer_parts.hpp"

#include <algorithm>

namespace ddpdiag {
namespace {

// A private member can be named where a template is instantiated explicitly ([temp.spec.general]/6).
using HookMember = std::unique_ptr<c10d::CommHookInterface> c10d::Reducer::*;

struct OfReducer {
    friend HookMember member(OfReducer tag);
};

template <HookMember Member>
struct Named {
    friend HookMember member(OfReducer /*tag*/) { return Member; }
};

template struct Named<&c10d::Reducer::comm_hook_>;

}  // namespace

std::vector<std::vector<at::Tensor>> parameters_of(const c10d::Reducer& reducer) {
    std::vector<std::vector<at::Tensor>> found;
    for (const auto& bucket : ReducerParts::buckets(reducer)) {
        found.push_back(bucket.variables);
    }
    return found;
}

bool expects_sparse(const c10d::Reducer& reducer) {
    return std::ranges::any_of(ReducerParts::buckets(reducer),
                               [](const auto& bucket) { return bucket.expect_sparse_gradient; });
}

std::unique_ptr<c10d::CommHookInterface>& hook_of(c10d::Reducer& reducer) {
    return reducer.*member(OfReducer{});
}

}  // namespace ddpdiag
