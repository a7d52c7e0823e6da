#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "platform/linux_shared_pages.hpp"
#include "platform/shared_memory.hpp"

namespace ddpdiag::platform {
namespace {

// A memfd has no name in any folder and is bound by no mount: a container's /dev/shm often has 64 MB. Others
// open it through /proc, which only the same user may do.
constexpr unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Cause cause_of(int error) {
    switch (error) {
        case ENOMEM:
        case ENOSPC:
            return Cause::no_space;
        case EACCES:
        case EPERM:
            return Cause::permission;
        case ENOENT:
            return Cause::not_found;
        default:
            return Cause::other;
    }
}

[[noreturn]] void fail(const std::string& what, int error) {
    throw SystemError(cause_of(error), what + ": " + std::generic_category().message(error));
}

// A number in a file; nothing where there is none.
std::optional<std::uint64_t> number_in(const char* path) {
    std::uint64_t number = 0;
    std::ifstream file(path);
    return file >> number ? std::optional(number) : std::nullopt;
}

// What this machine and this container have left; nothing: not known.
std::optional<std::uint64_t> available_bytes() {
    std::optional<std::uint64_t> available;
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        constexpr std::string_view label = "MemAvailable:";
        if (line.starts_with(label)) {
            available = std::stoull(line.substr(label.size())) * 1024;
            break;
        }
    }
    const auto most = number_in("/sys/fs/cgroup/memory.max");
    const auto used = number_in("/sys/fs/cgroup/memory.current");
    if (most && used) {
        const std::uint64_t left = *most > *used ? *most - *used : 0;
        available = available ? std::min(*available, left) : left;
    }
    return available;
}

// Reserving pages that do not exist would not fail: the kernel would end processes until they do.
void require_available(std::size_t bytes, const std::string& what) {
    if (const auto available = available_bytes(); available && bytes > *available) {
        fail(what, ENOMEM);
    }
}

class Descriptor {
public:
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (number_ >= 0) {
            ::close(number_);
        }
    }
    [[nodiscard]] int get() const { return number_; }
    [[nodiscard]] int release() { return std::exchange(number_, -1); }

private:
    int number_;
};

std::byte* map(int descriptor, std::size_t bytes, const std::string& what) {
    std::byte* const data = map_pages(descriptor, bytes);
    if (data == nullptr) {
        fail(what, errno);
    }
    return data;
}

// The handle of a descriptor; nullptr stands for none.
void* handle_of(int descriptor) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): never used as an address
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor) + 1);
}

// "12.34" as the path of descriptor 34 of process 12; empty if it is no such name.
std::string path_of(std::string_view name) {
    std::uint32_t process = 0;
    std::uint32_t descriptor = 0;
    const char* const end = name.data() + name.size();
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): it gets the end, too
    const auto [dot, error] = std::from_chars(name.data(), end, process);
    if (error != std::errc() || dot == end || *dot != '.') {
        return {};
    }
    const auto [rest, other_error] = std::from_chars(dot + 1, end, descriptor);
    if (other_error != std::errc() || rest != end) {
        return {};
    }
    return "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
}

}  // namespace

SharedMemory SharedMemory::create(std::size_t bytes) {
    const std::string what = "cannot make " + std::to_string(bytes) + " bytes of shared memory";
    const std::size_t reserved = paged_bytes(bytes);
    require_available(reserved, what);
    Descriptor memory(::memfd_create("pyddpdiag", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (memory.get() < 0) {
        fail(what, errno);
    }
    // posix_fallocate reserves every page: no store can fail later.
    if (const int error = ::posix_fallocate(memory.get(), 0, static_cast<off_t>(reserved)); error != 0) {
        fail(what, error);
    }
    if (::fcntl(memory.get(), F_ADD_SEALS, seals) != 0) {
        fail(what, errno);
    }
    std::byte* const data = map(memory.get(), bytes, what);
    use_large_pages(data, bytes);
    std::string name = std::to_string(::getpid()) + "." + std::to_string(memory.get());
    return {data, bytes, std::move(name), handle_of(memory.release())};
}

SharedMemory SharedMemory::open(std::string_view name, std::size_t bytes) {
    const std::string what = "cannot open the shared memory '" + std::string(name) + "'";
    const std::string path = path_of(name);
    if (path.empty()) {
        fail(what, EINVAL);
    }
    // Whatever it is, opening it must not wait and must have no effect.
    const Descriptor memory(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (memory.get() < 0) {
        fail(what, errno);
    }
    struct stat found{};
    const int its_seals = ::fcntl(memory.get(), F_GET_SEALS);
    if (::fstat(memory.get(), &found) != 0 || its_seals < 0 ||
        (static_cast<unsigned>(its_seals) & unsigned{F_SEAL_SHRINK}) == 0 ||
        std::cmp_less(found.st_size, bytes)) {
        fail(what, EINVAL);
    }
    return {map(memory.get(), bytes, what), bytes, std::string(name), nullptr};
}

void SharedMemory::release() noexcept {
    if (data_ != nullptr) {
        ::munmap(data_, paged_bytes(size_));
    }
    if (handle_ != nullptr) {
        ::close(static_cast<int>(reinterpret_cast<std::intptr_t>(handle_) - 1));
    }
}

}  // namespace ddpdiag::platform
