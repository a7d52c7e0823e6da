#include <windows.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "platform/beside.hpp"
#include "platform/platform.hpp"

namespace ddpdiag::platform {
namespace {

// ERROR_DISK_QUOTA_EXCEEDED, which mingw's headers lack.
constexpr DWORD disk_quota_exceeded = 1295;

Cause cause_of(DWORD error) {
    switch (error) {
        case ERROR_FILE_EXISTS:
        case ERROR_ALREADY_EXISTS:
            return Cause::exists;
        case ERROR_FILE_NOT_FOUND:
        case ERROR_PATH_NOT_FOUND:
        case ERROR_DIRECTORY:
        case ERROR_INVALID_DRIVE:
        case ERROR_BAD_NETPATH:
            return Cause::not_found;
        case ERROR_ACCESS_DENIED:
        case ERROR_SHARING_VIOLATION:
        case ERROR_WRITE_PROTECT:
            return Cause::permission;
        case ERROR_DISK_FULL:
        case ERROR_HANDLE_DISK_FULL:
        case ERROR_FILE_TOO_LARGE:
        case disk_quota_exceeded:
            return Cause::no_space;
        default:
            return Cause::other;
    }
}

std::string utf8(const std::filesystem::path& path) {
    const std::u8string text = path.u8string();
    return {text.begin(), text.end()};
}

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, DWORD error) {
    std::string message = std::string(what) + " '" + utf8(path) +
                          "': " + std::system_category().message(static_cast<int>(error));
    while (!message.empty() && (message.back() == '\n' || message.back() == '\r' || message.back() == '.')) {
        message.pop_back();
    }
    throw SystemError(cause_of(error), message);
}

// Closes its handle at the end of its scope.
class Handle {
public:
    explicit Handle(HANDLE handle) : handle_(handle) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
        if (handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE) {
            ::CloseHandle(handle_);
        }
    }
    [[nodiscard]] HANDLE get() const { return handle_; }

private:
    HANDLE handle_;
};

// Removes the half-made file unless told to keep it.
class NewFile {
public:
    explicit NewFile(const std::filesystem::path& path)
        : path_(path),
          // Others may read, replace or delete the file while it is written, as on other systems. Mapped
          // pages outlive this process, even if it is terminated.
          handle_(::CreateFileW(path.c_str(), GENERIC_READ | GENERIC_WRITE,
                                FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr, CREATE_NEW,
                                FILE_ATTRIBUTE_NORMAL, nullptr)) {
        if (handle_.get() == INVALID_HANDLE_VALUE) {
            fail("cannot create", path, creation_error(path));
        }
    }
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    ~NewFile() {
        if (!keep_) {
            ::DeleteFileW(path_.c_str());
        }
    }
    [[nodiscard]] HANDLE handle() const { return handle_.get(); }
    void keep() { keep_ = true; }

private:
    // Windows reports a folder of this name as denied access; the caller needs to know that it exists.
    static DWORD creation_error(const std::filesystem::path& path) {
        const DWORD error = ::GetLastError();
        const bool there = ::GetFileAttributesW(path.c_str()) != INVALID_FILE_ATTRIBUTES;
        return error == ERROR_ACCESS_DENIED && there ? ERROR_FILE_EXISTS : error;
    }

    const std::filesystem::path& path_;
    Handle handle_;
    bool keep_ = false;
};

// Moving the end of a file that isn't sparse reserves its clusters.
void reserve(HANDLE file, std::size_t bytes, const std::filesystem::path& path) {
    LARGE_INTEGER size{};
    size.QuadPart = static_cast<std::int64_t>(bytes);
    if (::SetFilePointerEx(file, size, nullptr, FILE_BEGIN) == 0 || ::SetEndOfFile(file) == 0) {
        // The handle and the call are right, so the size is beyond the file system's limit.
        const DWORD error = ::GetLastError();
        fail("cannot reserve space for", path,
             error == ERROR_INVALID_PARAMETER ? ERROR_FILE_TOO_LARGE : error);
    }
}

// Nanoseconds of `ticks` at `frequency` per second; the product of both would overflow after minutes.
std::int64_t to_ns(std::int64_t ticks, std::int64_t frequency) noexcept {
    constexpr std::int64_t second = 1'000'000'000;
    return ticks / frequency * second + ticks % frequency * second / frequency;
}

std::int64_t counter_frequency() noexcept {
    LARGE_INTEGER frequency{};
    ::QueryPerformanceFrequency(&frequency);
    return frequency.QuadPart;
}

// The machine's id, made when Windows was installed; empty if it cannot be read.
std::string machine_guid() {
    std::array<char, 64> text{};
    auto size = static_cast<DWORD>(text.size() - 1);
    const LSTATUS status =
        ::RegGetValueA(HKEY_LOCAL_MACHINE, "SOFTWARE\\Microsoft\\Cryptography", "MachineGuid",
                       RRF_RT_REG_SZ | RRF_SUBKEY_WOW6464KEY, nullptr, text.data(), &size);
    return status == ERROR_SUCCESS ? std::string(text.data()) : std::string();
}

std::string computer_name() {
    std::array<char, MAX_COMPUTERNAME_LENGTH + 1> name{};
    auto size = static_cast<DWORD>(name.size());
    return ::GetComputerNameA(name.data(), &size) != 0 ? std::string(name.data(), size) : std::string();
}

// A function that older systems lack, by name; null if it is missing.
template <typename Function>
Function* optional_function(const char* name) {
    const HMODULE library = ::GetModuleHandleW(L"kernel32.dll");
    // By way of void*: GetProcAddress returns a function of no real signature.
    return reinterpret_cast<Function*>(reinterpret_cast<void*>(::GetProcAddress(library, name)));
}

std::string utf8(const wchar_t* text) {
    const int size = ::WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
    if (size <= 1) {
        return {};
    }
    std::string result(static_cast<std::size_t>(size), '\0');
    ::WideCharToMultiByte(CP_UTF8, 0, text, -1, result.data(), size, nullptr, nullptr);
    result.pop_back();  // the zero
    return result;
}

std::wstring utf16(const std::string& text) {
    const int size = ::MultiByteToWideChar(CP_UTF8, 0, text.c_str(), -1, nullptr, 0);
    std::wstring result(static_cast<std::size_t>(std::max(size, 1)), L'\0');
    ::MultiByteToWideChar(CP_UTF8, 0, text.c_str(), -1, result.data(), size);
    result.pop_back();
    return result;
}

}  // namespace

MappedFile MappedFile::create(const std::filesystem::path& path, std::size_t bytes, IfExists if_exists,
                              const Fill& fill) {
    // Deleted, not truncated: Windows refuses to truncate a mapped file. It also keeps the name of a deleted file
    // that is still open; the creation below then reports that.
    if (if_exists == IfExists::replace && ::DeleteFileW(path.c_str()) == 0) {
        const DWORD error = ::GetLastError();
        if (error != ERROR_FILE_NOT_FOUND && error != ERROR_PATH_NOT_FOUND) {
            fail("cannot replace", path, error);
        }
    }
    NewFile file(path);
    reserve(file.handle(), bytes, path);
    const Handle mapping(::CreateFileMappingW(file.handle(), nullptr, PAGE_READWRITE, 0, 0, nullptr));
    if (mapping.get() == nullptr) {
        fail("cannot map", path, ::GetLastError());
    }
    // The view keeps the mapping alive, and the mapping the file: both handles may be closed.
    void* data = ::MapViewOfFile(mapping.get(), FILE_MAP_ALL_ACCESS, 0, 0, bytes);
    if (data == nullptr) {
        fail("cannot map", path, ::GetLastError());
    }
    // The first write to a page is slow: pay now and not in training.
    SYSTEM_INFO system{};
    ::GetSystemInfo(&system);
    for (std::size_t offset = 0; offset < bytes; offset += system.dwPageSize) {
        static_cast<volatile char*>(data)[offset] = 0;
    }
    MappedFile mapped(static_cast<std::byte*>(data), bytes, nullptr);
    if (fill) {
        fill(mapped.data_);
    }
    file.keep();
    return mapped;
}

void MappedFile::give_up() noexcept {
    ::UnmapViewOfFile(std::exchange(data_, nullptr));
}

void MappedFile::unmap() noexcept {
    ::UnmapViewOfFile(data_);
}

void MappedFile::renew_guard() noexcept {
    // Windows refuses to truncate a mapped file.
}

std::int64_t monotonic_ns() noexcept {
    static const std::int64_t frequency = counter_frequency();
    LARGE_INTEGER now{};
    ::QueryPerformanceCounter(&now);
    return to_ns(now.QuadPart, frequency);
}

const char* monotonic_clock_name() noexcept {
    return "QueryPerformanceCounter";
}

std::int64_t wall_ns() noexcept {
    FILETIME now{};
    ::GetSystemTimePreciseAsFileTime(&now);
    const auto ticks =
        static_cast<std::int64_t>((std::uint64_t{now.dwHighDateTime} << 32U) | now.dwLowDateTime);
    // From 100 ns since 1601 to nanoseconds since 1970.
    constexpr std::int64_t unix_epoch = 116'444'736'000'000'000;
    return (ticks - unix_epoch) * 100;
}

std::string clock_identity() {
    // All processes of one boot read one counter; cloned images share the id, hence the name as well.
    return machine_guid() + "/" + computer_name();
}

std::uint32_t thread_id() noexcept {
    return ::GetCurrentThreadId();
}

std::uint64_t process_id() noexcept {
    return ::GetCurrentProcessId();
}

std::string thread_name() {
    static auto* const get = optional_function<HRESULT WINAPI(HANDLE, PWSTR*)>("GetThreadDescription");
    PWSTR text = nullptr;
    if (get == nullptr || get(::GetCurrentThread(), &text) < 0 || text == nullptr) {
        return {};
    }
    std::string name = utf8(text);
    ::LocalFree(text);
    return name;
}

bool set_thread_name(const std::string& name) {
    static auto* const set = optional_function<HRESULT WINAPI(HANDLE, PCWSTR)>("SetThreadDescription");
    return set != nullptr && set(::GetCurrentThread(), utf16(name).c_str()) >= 0;
}

BlockedSignals::BlockedSignals() noexcept = default;
BlockedSignals::~BlockedSignals() = default;

void enter_background(const std::string& name) noexcept {
    set_thread_name(name);
    ::SetThreadPriority(::GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL);
}

std::size_t last_level_cache_bytes() {
    DWORD size = 0;
    ::GetLogicalProcessorInformationEx(RelationCache, nullptr, &size);
    std::vector<std::byte> entries(size);
    auto* const first = reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(entries.data());
    if (entries.empty() || ::GetLogicalProcessorInformationEx(RelationCache, first, &size) == 0) {
        return 0;
    }
    std::size_t largest = 0;
    // Entries differ in length.
    for (std::size_t offset = 0; offset < size;) {
        const auto* const entry =
            reinterpret_cast<const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(&entries[offset]);
        if (entry->Relationship == RelationCache && entry->Cache.Type != CacheInstruction) {
            largest = std::max<std::size_t>(largest, entry->Cache.CacheSize);
        }
        offset += std::max<DWORD>(entry->Size, 1);
    }
    return largest;
}

}  // namespace ddpdiag::platform
