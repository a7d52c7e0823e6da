// What no function of torch's reducer tells or changes, and its headers show.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <vector>

namespace ddpdiag {

// Members for derived classes, and we are none: this only borrows their names.
struct ReducerParts : c10d::Reducer {
    using Buckets = std::vector<Bucket>;

    // What the sum is divided by in this pass; below 1 where it is not set.
    static int divisor(const c10d::Reducer& reducer) { return reducer.*(&ReducerParts::div_factor_); }
    // Only on the thread that is within a call of the reducer, or between two passes. A function of the reducer's own would
    // wait for that call.
    static const Buckets& buckets(const c10d::Reducer& reducer) { return reducer.*(&ReducerParts::buckets_); }
};

// The parameters of each bucket. On the same threads as the buckets.
std::vector<std::vector<at::Tensor>> parameters_of(const c10d::Reducer& reducer);
// Whether it expects sparse gradients of some parameter.
bool expects_sparse(const c10d::Reducer& reducer);

// The hook of a reducer, nullptr: it has none. DDP sets it once and never gives it back, but reads it in each pass:
// between two passes it may be changed.
std::unique_ptr<c10d::CommHookInterface>& hook_of(c10d::Reducer& reducer);

}  // namespace ddpdiag
