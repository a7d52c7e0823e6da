// What we know about a process group: its names, its size, its peers, and how much was begun in it.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "torch/own_backend.hpp"

namespace ddpdiag {

// Where the ranks of a group are, and how they exchange messages beside their collectives.
class Peers {
public:
    // `hosts`: that of each rank, equal for ranks on one host. `messages`: a group of the same ranks for
    // messages, or nullptr.
    Peers(std::vector<std::string> hosts, const std::shared_ptr<OwnBackend>& messages);

    [[nodiscard]] const std::vector<std::string>& hosts() const noexcept { return hosts_; }
    [[nodiscard]] bool on_one_host() const noexcept { return on_one_host_; }
    // Even if the groups were destroyed since: all ranks must give the same answer.
    [[nodiscard]] bool has_messages() const noexcept { return has_messages_; }
    // Throws std::runtime_error if there is none, or it was destroyed.
    [[nodiscard]] c10::intrusive_ptr<c10d::Backend> messages() const;

private:
    std::vector<std::string> hosts_;
    bool on_one_host_;
    bool has_messages_;
    std::weak_ptr<OwnBackend> messages_;
};

// The peers of a group, once they are known. For any thread.
class KnownPeers {
public:
    // The same on all ranks, which determine them together; nullptr before that.
    [[nodiscard]] std::shared_ptr<const Peers> get() const;
    void set(std::shared_ptr<const Peers> peers);

private:
    mutable std::mutex mutex_;
    std::shared_ptr<const Peers> peers_;
};

struct Group {
    explicit Group(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);

    // Throws std::runtime_error if the group was destroyed.
    [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> lock() const;

    // Weak: a recorder that outlives its training must not keep Gloo's threads and connections alive. DDP
    // holds the group for as long as it can call a hook.
    c10::weak_intrusive_ptr<c10d::ProcessGroup> handle;
    std::string name;
    std::uint64_t id;  // FNV-1a of the name: equal on all members
    std::int64_t rank;
    std::int64_t size;
    std::atomic<std::uint64_t> next_sequence{0};       // of its buckets
    std::atomic<std::uint64_t> bucket_collectives{0};  // that they were begun as
    KnownPeers peers;
};

// What the groups that we make ourselves are described as: their collectives are not the program's.
inline constexpr std::string_view own_group = "pyddpdiag";

// The backend that would reduce a tensor on `device`, such as "gloo"; empty if the group has none.
[[nodiscard]] std::string backend_name(c10d::ProcessGroup& group, c10::DeviceType device);

// How many collectives this rank has begun in a group. Empty where torch does not count: in a group with a
// backend for each device ("cpu:gloo,cuda:gloo"), if torch._dynamo, which brings a backend of its own, was
// imported before.
[[nodiscard]] std::optional<std::uint64_t> collectives_begun(c10d::ProcessGroup& group);

}  // namespace ddpdiag
