#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "platform/mapping_guard.hpp"

namespace ddpdiag::platform {
namespace {

constexpr mode_t owner_only = S_IRUSR | S_IWUSR;

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

// Whether this name exists, even as a dangling link.
bool is_there(const std::filesystem::path& path) {
    struct stat found{};
    return ::lstat(path.c_str(), &found) == 0;
}

// A file in the making. It disappears again unless it is published.
class NewFile {
public:
    enum class Named : bool { at_once, when_published };

    // Empty if the folder's file system, or the kernel, has no unnamed files.
    static std::optional<NewFile> without_a_name(const std::filesystem::path& path) {
        const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
        // Only by this path does the kernel link an unnamed file.
        if (::access("/proc/self/fd", F_OK) != 0) {
            return std::nullopt;
        }
        const int descriptor = ::open(parent.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, owner_only);
        if (descriptor < 0) {
            return std::nullopt;
        }
        return NewFile(path, descriptor, Named::when_published);
    }

    static NewFile with_its_name(const std::filesystem::path& path, IfExists if_exists) {
        make_room(path, if_exists);
        const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, owner_only);
        if (descriptor < 0) {
            fail("cannot create", path, errno);
        }
        return {path, descriptor, Named::at_once};
    }

    NewFile(NewFile&& other) noexcept
        : path_(std::move(other.path_)),
          descriptor_(std::exchange(other.descriptor_, -1)),
          named_(other.named_),
          published_(other.published_) {}
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    NewFile& operator=(NewFile&&) = delete;
    ~NewFile() {
        if (descriptor_ < 0) {
            return;
        }
        ::close(descriptor_);
        if (named_ == Named::at_once && !published_) {
            ::unlink(path_.c_str());
        }
    }

    [[nodiscard]] int descriptor() const { return descriptor_; }

    // False: this file system refuses to link an unnamed file.
    [[nodiscard]] bool publish(IfExists if_exists) {
        if (named_ == Named::when_published) {
            make_room(path_, if_exists);
            const std::string ours = "/proc/self/fd/" + std::to_string(descriptor_);
            if (::linkat(AT_FDCWD, ours.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
                if (errno != EEXIST) {
                    return false;
                }
                fail("cannot create", path_, errno);
            }
        }
        published_ = true;
        return true;
    }

private:
    NewFile(std::filesystem::path path, int descriptor, Named named)
        : path_(std::move(path)), descriptor_(descriptor), named_(named) {}

    // An old file is unlinked, not truncated: a process that still maps it keeps its content.
    static void make_room(const std::filesystem::path& path, IfExists if_exists) {
        if (if_exists == IfExists::replace && ::unlink(path.c_str()) != 0 && errno != ENOENT) {
            fail("cannot replace", path, errno);
        }
    }

    std::filesystem::path path_;
    int descriptor_;
    Named named_;
    bool published_ = false;
};

void reserve(const NewFile& file, std::size_t bytes, const std::filesystem::path& path) {
    int error = EINTR;
    while (error == EINTR) {  // a signal may interrupt a large reservation
        error = ::posix_fallocate(file.descriptor(), 0, static_cast<off_t>(bytes));
    }
    if (error != 0) {
        fail("cannot reserve space for", path, error);
    }
}

std::byte* map(const NewFile& file, std::size_t bytes, const std::filesystem::path& path) {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
    if (data == MAP_FAILED) {
        fail("cannot map", path, errno);
    }
    return static_cast<std::byte*>(data);
}

// The first write to a page costs microseconds, at times milliseconds: pay now and not in training.
// Populating the mapping is not enough: that only reads.
void touch(std::byte* data, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    for (std::size_t offset = 0; offset < bytes; offset += page) {
        static_cast<volatile std::byte*>(data)[offset] = std::byte{0};
    }
}

}  // namespace

MappedFile MappedFile::create(const std::filesystem::path& path, std::size_t bytes, IfExists if_exists,
                              const Fill& fill) {
    if (if_exists == IfExists::refuse && is_there(path)) {
        fail("cannot create", path, EEXIST);
    }
    const auto make = [&](NewFile file) -> std::optional<MappedFile> {
        reserve(file, bytes, path);
        MappedFile mapped(map(file, bytes, path), bytes, nullptr);
        mapped.guarded_ = guard(mapped.data_, bytes);
        touch(mapped.data_, bytes);
        if (fill) {
            fill(mapped.data_);
        }
        return file.publish(if_exists) ? std::optional(std::move(mapped)) : std::nullopt;
    };
    if (auto unnamed = NewFile::without_a_name(path)) {
        if (auto made = make(std::move(*unnamed))) {
            return std::move(*made);
        }
    }
    auto made = make(NewFile::with_its_name(path, if_exists));
    if (!made) {  // a name that it created itself is its own
        fail("cannot create", path, EEXIST);
    }
    return std::move(*made);
}

void MappedFile::give_up() noexcept {
    if (guarded_ != nullptr) {
        platform::give_up(*guarded_);
    }
}

void MappedFile::unmap() noexcept {
    if (guarded_ != nullptr) {
        unguard(*guarded_);
    }
    ::munmap(data_, size_);
}

}  // namespace ddpdiag::platform
