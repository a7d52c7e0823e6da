#include "core/shared/block.hpp"

#include <atomic>
#include <new>

#include "core/shared/layout.hpp"

namespace ddpdiag {
namespace {

constexpr std::size_t header = sizeof(BlockHeader);

std::uint64_t next_id() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

platform::SharedMemory open_block(std::string_view name, std::uint64_t bytes) {
    if (bytes <= header) {
        throw platform::SystemError(platform::Cause::other,
                                    "a shared block of " + std::to_string(bytes) + " bytes is too small");
    }
    return platform::SharedMemory::open(name, static_cast<std::size_t>(bytes));
}

}  // namespace

SharedBlock::SharedBlock(std::size_t bytes)
    : memory_(platform::SharedMemory::create(bytes + header)), id_(next_id()) {
    auto* const head = new (memory_.data()) BlockHeader{};
    head->id = id_;
    head->magic = shared_magic;
}

std::byte* SharedBlock::data() const noexcept {
    return memory_.data() + header;
}

std::size_t SharedBlock::size() const noexcept {
    return memory_.size() - header;
}

PeerBlock::PeerBlock(std::string_view name, std::uint64_t memory_bytes, std::uint64_t id)
    : memory_(open_block(name, memory_bytes)), id_(id) {
    const auto* const head = reinterpret_cast<const BlockHeader*>(memory_.data());
    if (head->magic != shared_magic || head->id != id) {
        throw platform::SystemError(platform::Cause::other,
                                    "'" + std::string(name) + "' is not the block that was announced");
    }
}

std::byte* PeerBlock::data() const noexcept {
    return memory_.data() + header;
}

std::size_t PeerBlock::size() const noexcept {
    return memory_.size() - header;
}

}  // namespace ddpdiag
