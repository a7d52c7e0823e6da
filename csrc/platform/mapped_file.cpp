// What mapped files have in common on all systems; linux_mapped_file.cpp and windows.cpp create and unmap them.
#include <utility>

#include "platform/mapping_guard.hpp"

namespace ddpdiag::platform {

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guarded_(std::exchange(other.guarded_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(guarded_, other.guarded_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        unmap();
    }
}

MappingState MappedFile::state() const noexcept {
    return guarded_ != nullptr ? guarded_->state.load(std::memory_order_acquire) : MappingState::whole;
}

}  // namespace ddpdiag::platform
