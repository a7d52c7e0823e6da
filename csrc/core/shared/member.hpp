// What a rank brings to a group whose buckets meet in shared memory, and what it sees of the others.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/shared/layout.hpp"
#include "platform/process_watch.hpp"
#include "platform/shared_bell.hpp"
#include "platform/shared_memory.hpp"

namespace ddpdiag {

using SharedSecret = std::array<std::uint64_t, 2>;

// Our own part.
class SharedMember {
public:
    // With a fresh secret. Throws platform::SystemError.
    SharedMember();

    [[nodiscard]] const std::string& name() const noexcept { return memory_.name(); }
    [[nodiscard]] SharedSecret secret() const noexcept;
    [[nodiscard]] SharedControl& control() const noexcept;
    [[nodiscard]] const platform::SharedBell& bell() const noexcept { return bell_; }

private:
    platform::SharedMemory memory_;
    platform::SharedBell bell_;
};

// The part of another process of this host.
class SharedPeer {
public:
    // `process`: its number. Throws platform::SystemError if it does not share memory with us, or cannot be watched.
    SharedPeer(const std::string& name, std::uint64_t process);

    // To be compared with what it says itself: somebody else may have the same name on another host.
    [[nodiscard]] SharedSecret secret() const noexcept;
    [[nodiscard]] SharedControl& control() const noexcept;
    [[nodiscard]] bool runs() const noexcept { return watch_.runs(); }
    // Wakes it if it sleeps.
    void ring() const noexcept;

private:
    platform::ProcessWatch watch_;
    platform::SharedMemory memory_;
    platform::SharedBell bell_;
};

}  // namespace ddpdiag
