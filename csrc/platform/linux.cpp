#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "platform/platform.hpp"

namespace ddpdiag::platform {
namespace {

Cause cause_of(int error) {
    switch (error) {
        case EEXIST:
            return Cause::exists;
        case ENOENT:
        case ENOTDIR:
            return Cause::not_found;
        case EACCES:
        case EPERM:
        case EROFS:
            return Cause::permission;
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return Cause::no_space;
        default:
            return Cause::other;
    }
}

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int error) {
    throw SystemError(cause_of(error), std::string(what) + " '" + path.string() +
                                           "': " + std::generic_category().message(error));
}

// Closes the descriptor, and takes the half-made file away unless told to keep it.
class NewFile {
public:
    NewFile(const std::filesystem::path& path, int flags)
        : path_(path), descriptor_(::open(path.c_str(), flags, S_IRUSR | S_IWUSR)) {
        if (descriptor_ < 0) {
            fail("cannot create", path, errno);
        }
    }
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    ~NewFile() {
        ::close(descriptor_);
        if (!keep_) {
            ::unlink(path_.c_str());
        }
    }
    [[nodiscard]] int descriptor() const { return descriptor_; }
    void keep() { keep_ = true; }

private:
    const std::filesystem::path& path_;
    int descriptor_;
    bool keep_ = false;
};

std::int64_t read_clock(clockid_t clock) noexcept {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// "512K" in bytes; 0 if it is no such text.
std::size_t cache_bytes(const std::string& text) {
    std::size_t bytes = 0;
    const char* const end = text.data() + text.size();
    const auto [unit, error] = std::from_chars(text.data(), end, bytes);
    if (error != std::errc() || unit == end) {
        return error == std::errc() ? bytes : 0;
    }
    const std::size_t power = std::string_view("KMG").find(*unit);
    return power == std::string_view::npos ? bytes : bytes << (10 * (power + 1));
}

}  // namespace

MappedFile MappedFile::create(const std::filesystem::path& path, std::size_t bytes, IfExists if_exists) {
    // An old file is unlinked, not truncated: a process that still maps it must not fault.
    if (if_exists == IfExists::replace && ::unlink(path.c_str()) != 0 && errno != ENOENT) {
        fail("cannot replace", path, errno);
    }
    NewFile file(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC);
    int error = EINTR;
    while (error == EINTR) {  // a signal in the middle of a large reservation is no reason to give up
        error = ::posix_fallocate(file.descriptor(), 0, static_cast<off_t>(bytes));
    }
    if (error != 0) {
        fail("cannot reserve space for", path, error);
    }
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
    if (data == MAP_FAILED) {
        fail("cannot map", path, errno);
    }
    file.keep();
    // A first write to a page costs microseconds, at times milliseconds: pay now and not in training.
    // Populating the mapping would not do, it only reads.
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    for (std::size_t offset = 0; offset < bytes; offset += page) {
        static_cast<volatile char*>(data)[offset] = 0;
    }
    return {static_cast<std::byte*>(data), bytes};
}

void MappedFile::unmap(std::byte* data, std::size_t size) noexcept {
    ::munmap(data, size);
}

std::int64_t monotonic_ns() noexcept {
    return read_clock(CLOCK_MONOTONIC);
}

const char* monotonic_clock_name() noexcept {
    return "CLOCK_MONOTONIC";
}

std::int64_t wall_ns() noexcept {
    return read_clock(CLOCK_REALTIME);
}

std::string clock_identity() {
    // A boot has one monotonic clock, except that a time namespace may shift it.
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    std::array<char, 64> link{};
    const ssize_t length = ::readlink("/proc/self/ns/time", link.data(), link.size() - 1);
    std::string space = length > 0 ? std::string(link.data(), static_cast<std::size_t>(length)) : "";
    std::erase_if(space, [](char c) { return c < '0' || c > '9'; });
    return boot + "/" + space;
}

std::uint32_t thread_id() noexcept {
    thread_local const auto id = static_cast<std::uint32_t>(::syscall(SYS_gettid));
    return id;
}

std::uint64_t process_id() noexcept {
    return static_cast<std::uint64_t>(::getpid());
}

std::string thread_name() {
    std::array<char, 16> name{};  // the kernel's length, with the zero
    return ::pthread_getname_np(::pthread_self(), name.data(), name.size()) == 0 ? name.data() : "";
}

bool set_thread_name(const std::string& name) {
    constexpr std::size_t longest = 15;
    std::size_t length = std::min(name.size(), longest);
    // Not in the middle of a character of several bytes.
    while (length > 0 && length < name.size() && (static_cast<unsigned char>(name[length]) & 0xC0U) == 0x80) {
        --length;
    }
    return ::pthread_setname_np(::pthread_self(), name.substr(0, length).c_str()) == 0;
}

std::size_t last_level_cache_bytes() {
    std::size_t largest = 0;
    for (int index = 0; index < 16; ++index) {
        const std::string cache = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
        std::string type;
        std::string size;
        if (std::ifstream(cache + "/type") >> type && type != "Instruction" &&
            std::ifstream(cache + "/size") >> size) {
            largest = std::max(largest, cache_bytes(size));
        }
    }
    if (largest > 0) {
        return largest;
    }
    // Where sysfs is hidden, the C library may know from the processor itself.
    return static_cast<std::size_t>(
        std::max({0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE), ::sysconf(_SC_LEVEL3_CACHE_SIZE),
                  ::sysconf(_SC_LEVEL4_CACHE_SIZE)}));
}

}  // namespace ddpdiag::platform
