// What a mapped file is on every system; making and unmapping it is in linux.cpp and windows.cpp.
#include <utility>

#include "platform/platform.hpp"

namespace ddpdiag::platform {

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        unmap(data_, size_);
    }
}

}  // namespace ddpdiag::platform
