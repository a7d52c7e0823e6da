// Memory of this process that a device reads and writes by itself, without a copy by the driver.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace ddpdiag {

// How the memory of the process is registered with a type of device: c10 can only allocate such memory. Called on any
// thread; must not throw.
struct Pinning {
    std::function<bool(std::uintptr_t address, std::size_t bytes)> pin;  // false: it was not possible
    std::function<void(std::uintptr_t address)> unpin;
};

// For memory that is pinned from now on.
void set_pinning(c10::DeviceType type, Pinning pinning);
// Nothing is pinned or unpinned any more: the process ends.
void end_pinning();

// Pins memory while it lives, if that is possible.
class Pinned {
public:
    Pinned(c10::DeviceType type, const void* address, std::size_t bytes);
    ~Pinned();
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;

    [[nodiscard]] bool is() const noexcept { return is_; }

private:
    c10::DeviceType type_;
    std::uintptr_t address_;
    bool is_ = false;
};

}  // namespace ddpdiag
