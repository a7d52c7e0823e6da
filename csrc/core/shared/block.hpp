// Shared memory that holds a bucket.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/shared_memory.hpp"

namespace ddpdiag {

class SharedBlock {
public:
    // Zeros, aligned to 64 bytes. Throws platform::SystemError: no memory is left.
    explicit SharedBlock(std::size_t bytes);

    [[nodiscard]] std::byte* data() const noexcept;
    [[nodiscard]] std::size_t size() const noexcept;
    // Never that of another block of this process, and never 0.
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
    [[nodiscard]] const platform::SharedMemory& memory() const noexcept { return memory_; }

private:
    platform::SharedMemory memory_;
    std::uint64_t id_;
};

// A block of another process.
class PeerBlock {
public:
    // Throws platform::SystemError: there is none of this name, size and id.
    PeerBlock(std::string_view name, std::uint64_t memory_bytes, std::uint64_t id);

    [[nodiscard]] std::byte* data() const noexcept;
    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

private:
    platform::SharedMemory memory_;
    std::uint64_t id_;
};

}  // namespace ddpdiag
