#include <windows.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "platform/shared_memory.hpp"

namespace ddpdiag::platform {
namespace {

// Of this session only, and with the default rights: those of its user.
constexpr std::string_view prefix = "Local\\pyddpdiag-";

[[noreturn]] void fail(const std::string& what, DWORD error) {
    const Cause cause = error == ERROR_COMMITMENT_LIMIT || error == ERROR_NOT_ENOUGH_MEMORY ||
                                error == ERROR_NO_SYSTEM_RESOURCES
                            ? Cause::no_space
                        : error == ERROR_ACCESS_DENIED  ? Cause::permission
                        : error == ERROR_FILE_NOT_FOUND ? Cause::not_found
                                                        : Cause::other;
    throw SystemError(cause, what + ": " + std::system_category().message(static_cast<int>(error)));
}

std::string random_name() {
    constexpr std::string_view digits = "0123456789abcdef";
    std::random_device random;
    std::string name(prefix);
    for (int i = 0; i < 32; ++i) {
        name += digits[random() % digits.size()];
    }
    return name;
}

bool is_ours(std::string_view name) {
    return name.size() <= SharedMemory::longest_name && name.starts_with(prefix) &&
           std::ranges::all_of(name.substr(prefix.size()),
                               [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

SharedMemory SharedMemory::create(std::size_t bytes) {
    const std::string what = "cannot make " + std::to_string(bytes) + " bytes of shared memory";
    std::string name = random_name();
    const auto size = static_cast<std::uint64_t>(bytes);
    // Of the page file: its memory is promised here and not when it is first touched.
    const HANDLE mapping =
        ::CreateFileMappingA(INVALID_HANDLE_VALUE, nullptr, PAGE_READWRITE, static_cast<DWORD>(size >> 32U),
                             static_cast<DWORD>(size & 0xffffffffU), name.c_str());
    const DWORD error = ::GetLastError();
    if (mapping == nullptr) {
        fail(what, error);
    }
    void* const data =
        error == ERROR_ALREADY_EXISTS ? nullptr : ::MapViewOfFile(mapping, FILE_MAP_ALL_ACCESS, 0, 0, bytes);
    if (data == nullptr) {
        const DWORD why = error == ERROR_ALREADY_EXISTS ? error : ::GetLastError();
        ::CloseHandle(mapping);
        fail(what, why);
    }
    return {static_cast<std::byte*>(data), bytes, std::move(name), mapping};
}

SharedMemory SharedMemory::open(std::string_view name, std::size_t bytes) {
    const std::string text(name);
    const std::string what = "cannot open the shared memory '" + text + "'";
    if (!is_ours(name)) {
        fail(what, ERROR_INVALID_NAME);
    }
    const HANDLE mapping = ::OpenFileMappingA(FILE_MAP_READ | FILE_MAP_WRITE, FALSE, text.c_str());
    if (mapping == nullptr) {
        fail(what, ::GetLastError());
    }
    // Refuses what is smaller; the view keeps the mapping.
    void* const data = ::MapViewOfFile(mapping, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, bytes);
    const DWORD error = ::GetLastError();
    ::CloseHandle(mapping);
    if (data == nullptr) {
        fail(what, error);
    }
    return {static_cast<std::byte*>(data), bytes, text, nullptr};
}

void SharedMemory::release() noexcept {
    if (data_ != nullptr) {
        ::UnmapViewOfFile(data_);
    }
    if (handle_ != nullptr) {
        ::CloseHandle(handle_);
    }
}

}  // namespace ddpdiag::platform
