#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "platform/beside.hpp"
#include "platform/platform.hpp"

namespace ddpdiag::platform {
namespace {

std::int64_t read_clock(clockid_t clock) noexcept {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// "512K" in bytes; 0 for any other text.
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
    // Each boot has one monotonic clock; a time namespace may shift it.
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
    // Do not cut a multi-byte character.
    while (length > 0 && length < name.size() && (static_cast<unsigned char>(name[length]) & 0xC0U) == 0x80) {
        --length;
    }
    return ::pthread_setname_np(::pthread_self(), name.substr(0, length).c_str()) == 0;
}

BlockedSignals::BlockedSignals() noexcept {
    sigset_t signals{};
    ::sigfillset(&signals);
    for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
        ::sigdelset(&signals, fault);
    }
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

BlockedSignals::~BlockedSignals() {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void enter_background(const std::string& name) noexcept {
    set_thread_name(name);
    // On Linux a thread has a nice value of its own.
    constexpr int nice = 10;
    ::setpriority(PRIO_PROCESS, thread_id(), nice);
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
    // Where sysfs is hidden, the C library may know the size from the processor itself.
    return static_cast<std::size_t>(
        std::max({0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE), ::sysconf(_SC_LEVEL3_CACHE_SIZE),
                  ::sysconf(_SC_LEVEL4_CACHE_SIZE)}));
}

}  // namespace ddpdiag::platform
