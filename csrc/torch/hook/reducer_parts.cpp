#include "torch/hook/reducer_parts.hpp"

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

std::unique_ptr<c10d::CommHookInterface>& hook_of(c10d::Reducer& reducer) {
    return reducer.*member(OfReducer{});
}

}  // namespace ddpdiag
