// One DDP module as the probes see it: its parameters' identities and the backward pass under way.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/trace_file.hpp"
#include "torch/compressed_bucket.hpp"
#include "torch/gradient_watch.hpp"
#include "torch/process_group.hpp"

namespace ddpdiag {

class BucketOperation;
struct BucketFlight;

struct ModuleState {
    // The parameter's index in this module; an unknown one gets the next.
    std::uint32_t index_of(const at::Tensor& parameter) {
        const auto [entry, added] = parameters.try_emplace(parameter.unsafeGetTensorImpl(),
                                                           static_cast<std::uint32_t>(parameters.size()));
        if (added) {
            pinned.emplace_back(parameter.getIntrusivePtr());
        }
        return entry->second;
    }

    std::uint32_t index = 0;
    std::shared_ptr<Group> group;
    std::vector<std::string> names;  // of the parameters, in the order of named_parameters()
    std::unordered_map<const c10::TensorImpl*, std::uint32_t> parameters;
    // Weak, so that no parameter of another module can get the same address while this one is known.
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> pinned;
    // A module that was not found, only its buckets were: parameters are numbered as they turn up.
    bool anonymous = false;

    // Marks of the forward and backward pass under way; 0 = not seen. Atomic because an accelerator's
    // backward runs on a thread of its own.
    std::atomic<std::int64_t> forward_begin{0};
    std::atomic<std::int64_t> forward_end{0};
    std::atomic<std::int64_t> backward_begin{0};
    std::atomic<std::int64_t> first_gradient{0};
    std::atomic<bool> armed{false};          // a forward pass ended and its backward has not begun
    std::atomic<bool> synchronising{false};  // this pass will reduce gradients (not under no_sync)
    std::atomic<bool> sampled{false};        // parameter records are written in this pass

    std::atomic<std::uint32_t> passes{
        0};                              // synchronising backward passes begun: counted at their first bucket
    std::atomic<std::uint32_t> pass{0};  // number of the pass that the latest forward pass leads to, from 0
    // Buckets enqueued and not yet consumed, in DDP's order. Only touched by the thread that DDP runs its
    // hook and its finalisation on, one after the other.
    std::vector<std::shared_ptr<BucketOperation>> unconsumed;
    std::size_t next_consumed = 0;
    // By bucket index, used again from pass to pass, by that thread too.
    std::vector<std::shared_ptr<BucketOperation>> operations;
    std::vector<std::shared_ptr<BucketFlight>> flights;  // bucket_flight.cpp
    // Gloo's own of the pass under way. Held so that they die here: a worker would destroy them under the mutex that the
    // next bucket needs.
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
    GradientWatch gradients;
    // By bucket index; made at first use. Touched by that thread alone, but for what an operation holds.
    std::vector<std::shared_ptr<CompressedBucket>> compressed;
    bool strangers = false;       // collectives other than buckets run in its passes (backward_pass.hpp)
    bool signal_by_copy = false;  // how the workers tell that they start, in this pass (start_signal.hpp)
};

}  // namespace ddpdiag
