// What we keep of a process group: its names, its size, and the running number of its buckets.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace ddpdiag {

struct Group {
    explicit Group(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);

    // Throw std::runtime_error if the group was destroyed.
    [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> lock() const;
    [[nodiscard]] c10::intrusive_ptr<c10d::Backend> lock_messages() const;

    // Weak: a recorder that outlives its training must not keep Gloo's threads and connections alive. DDP
    // holds the group for as long as it can call a hook.
    c10::weak_intrusive_ptr<c10d::ProcessGroup> handle;
    // For the exchange of 16-bit buckets (bucket_exchange.hpp), the same on all ranks.
    bool exchange_is_set = false;
    bool over_links = false;  // not all ranks are processes of one host
    // For messages between the ranks beside their collectives; expired = there is none.
    c10::weak_intrusive_ptr<c10d::Backend> messages{c10::intrusive_ptr<c10d::Backend>()};
    std::string name;
    std::uint64_t id;  // FNV-1a of the name: equal on all members
    std::int64_t rank;
    std::int64_t size;
    std::atomic<std::uint64_t> next_sequence{0};
};

// Enqueues the sum of `tensor` over the group, in place.
[[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> all_reduce(const Group& group,
                                                                 const at::Tensor& tensor);

// The backend that would reduce a tensor on `device`, such as "gloo"; empty if the group has none.
[[nodiscard]] std::string backend_name(c10d::ProcessGroup& group, c10::DeviceType device);

}  // namespace ddpdiag
