#include "platform/shared_memory.hpp"

#include <utility>

namespace ddpdiag::platform {

SharedMemory::SharedMemory(std::byte* data, std::size_t size, std::string name, void* handle) noexcept
    : data_(data), size_(size), name_(std::move(name)), handle_(handle) {}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      name_(std::move(other.name_)),
      handle_(std::exchange(other.handle_, nullptr)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
    if (this != &other) {
        release();
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
        name_ = std::move(other.name_);
        handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
}

SharedMemory::~SharedMemory() {
    release();
}

}  // namespace ddpdiag::platform
