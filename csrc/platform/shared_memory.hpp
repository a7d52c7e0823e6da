// Memory that processes of one host share, without a file that anybody could find or that could stay behind.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "platform/platform.hpp"

namespace ddpdiag::platform {

// Only processes of the same user can open it, as long as its maker holds it. It is gone when nobody has it
// mapped any more, however those processes end. Its memory is reserved when it is made, and nobody can take it
// away from a process that has it mapped.
class SharedMemory {
public:
    // Zeros. Throws SystemError: there is no memory left, or the system has no such memory.
    [[nodiscard]] static SharedMemory create(std::size_t bytes);
    // What another process created, by its name() there. The name may come from anybody: nothing but memory of this
    // kind is ever opened. Throws SystemError: there is none, it may not be opened, or it is smaller than
    // `bytes`.
    [[nodiscard]] static SharedMemory open(std::string_view name, std::size_t bytes);

    SharedMemory(SharedMemory&& other) noexcept;
    SharedMemory& operator=(SharedMemory&& other) noexcept;
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    // At most longest_name bytes of ASCII.
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    static constexpr std::size_t longest_name = 63;

private:
    SharedMemory(std::byte* data, std::size_t size, std::string name, void* handle) noexcept;
    void release() noexcept;

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::string name_;
    void* handle_ = nullptr;  // what keeps it open for others; nullptr where it was opened
};

}  // namespace ddpdiag::platform
