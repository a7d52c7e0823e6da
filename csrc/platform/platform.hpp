// Everything the core needs from an operating system. Implemented once per system: linux.cpp, windows.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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

// Whether stores to a mapping still reach its file.
enum class MappingState : std::uint8_t {
    whole,
    cut_short,  // the file was truncated, or its disk failed: stores are lost
    inherited,  // this process is a forked child: its stores stay private
};

struct GuardedMapping;

// A file mapped readable and writable, shared with every process that maps it. The pages outlive this
// process, however it ends: the kernel owns them. A store never ends the process (mapping_guard.hpp).
class MappedFile {
public:
    // Whether a mapping that was given up can still be written to, for nothing: its addresses are never somebody else's.
#ifdef _WIN32
    static constexpr bool keeps_addresses = false;
#else
    static constexpr bool keeps_addresses = true;
#endif

    // Writes the first content of a new file into its zeros.
    using Fill = std::function<void(std::byte*)>;

    // Creates the file with `bytes` bytes of zeros, reserved on the disk, readable only by its owner, and `fill`s
    // it. Where the system allows it, the file gets its name only then, so that nobody ever finds half a file.
    // Throws SystemError; a full disk shows here and not as a fault in the middle of training.
    static MappedFile create(const std::filesystem::path& path, std::size_t bytes, IfExists if_exists,
                             const Fill& fill = {});

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] MappingState state() const noexcept;

    // The file is no longer mapped, and free to be removed; its state stays as it was. Once, when nobody reads or writes
    // here any more, except as `keeps_addresses` says.
    void give_up() noexcept;

    // Reinstalls the guard of all mappings if another fault handler has replaced it.
    static void renew_guard() noexcept;

private:
    MappedFile(std::byte* data, std::size_t size, GuardedMapping* guarded) noexcept
        : data_(data), size_(size), guarded_(guarded) {}
    void unmap() noexcept;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    GuardedMapping* guarded_ = nullptr;  // none on a system that needs no guard
};

// Nanoseconds of a clock that never goes back and that all processes of this machine share.
[[nodiscard]] std::int64_t monotonic_ns() noexcept;
[[nodiscard]] const char* monotonic_clock_name() noexcept;

// Nanoseconds since 1970-01-01 UTC.
[[nodiscard]] std::int64_t wall_ns() noexcept;

// Equal in two processes only if their monotonic clocks are the same clock.
[[nodiscard]] std::string clock_identity();

[[nodiscard]] std::uint32_t thread_id() noexcept;
[[nodiscard]] std::uint64_t process_id() noexcept;

// The calling thread's name in UTF-8, as debuggers and profilers show it. Empty if it has none, or if the
// system does not keep names. On Linux, a thread that was never named has its process's name.
[[nodiscard]] std::string thread_name();

// Names the calling thread; Linux keeps the first 15 bytes. Returns false if the system does not keep names.
bool set_thread_name(const std::string& name);

// For a thread that works beside the program (beside.hpp): names it, and gives way to others (Linux: nice 10; Windows:
// below normal).
void enter_background(const std::string& name) noexcept;

// Size of the largest cache that a core can use, as the system reports it; 0 if it does not.
[[nodiscard]] std::size_t last_level_cache_bytes();

}  // namespace ddpdiag::platform
