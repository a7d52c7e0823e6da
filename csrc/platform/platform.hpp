// All that the core needs of an operating system. Implemented once per system: linux.cpp, windows.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace ddpdiag::platform {

// Why a system call failed, so that the Python side can raise the matching error.
enum class Cause : std::uint8_t { other, exists, not_found, permission, no_space };

class SystemError : public std::runtime_error {
public:
    SystemError(Cause cause, const std::string& message) : std::runtime_error(message), cause_(cause) {}
    [[nodiscard]] Cause cause() const noexcept { return cause_; }

private:
    Cause cause_;
};

enum class IfExists : std::uint8_t { refuse, replace };

// A file mapped readable and writable, shared with every process that maps it. The pages outlive this
// process, however it ends: the kernel owns them.
class MappedFile {
public:
    // Makes the file with `bytes` bytes of zeros, really reserved on the disk, readable by its owner only.
    // Throws SystemError; a full disk is found here and not as a fault in the middle of training.
    static MappedFile create(const std::filesystem::path& path, std::size_t bytes, IfExists if_exists);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

private:
    MappedFile(std::byte* data, std::size_t size) noexcept : data_(data), size_(size) {}
    static void unmap(std::byte* data, std::size_t size) noexcept;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

// Nanoseconds of a clock that never goes back and is the same for every process of this machine.
[[nodiscard]] std::int64_t monotonic_ns() noexcept;
[[nodiscard]] const char* monotonic_clock_name() noexcept;

// Nanoseconds since 1970-01-01 UTC.
[[nodiscard]] std::int64_t wall_ns() noexcept;

// Equal in two processes only if their monotonic clocks are the same clock.
[[nodiscard]] std::string clock_identity();

[[nodiscard]] std::uint32_t thread_id() noexcept;
[[nodiscard]] std::uint64_t process_id() noexcept;

// The calling thread's name in UTF-8, as debuggers and profilers show it. Empty if it has none, or if the
// system keeps none. A thread of Linux that was never named bears its process's name.
[[nodiscard]] std::string thread_name();

// Names the calling thread; Linux keeps the first 15 bytes. False where the system keeps no names.
bool set_thread_name(const std::string& name);

// Of the largest cache that a core can use, as the system tells it; 0 when it does not.
[[nodiscard]] std::size_t last_level_cache_bytes();

}  // namespace ddpdiag::platform
