// The headers declare SIO_TCP_INFO from this version of Windows 10 on. Older systems show at run time: they reject
// the request.
#undef NTDDI_VERSION
#undef _WIN32_WINNT
#define _WIN32_WINNT 0x0A00
#define NTDDI_VERSION 0x0A000006

#include "platform/socket_reader.hpp"

#include <mstcpip.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "platform/platform.hpp"

namespace ddpdiag::platform {
namespace {

// One handle as the kernel lists it.
struct HandleFacts {
    std::uintptr_t handle;
    std::uintptr_t type;
    std::uintptr_t access;
};

// Two ways to the same list. ntdll exports both functions on every system that torch runs on; a system that does not
// support one answers with an error.
namespace native {

using Status = LONG;
constexpr auto too_short = static_cast<Status>(0xC0000004);

// Of one process; since Windows 8.
struct ProcessHandle {
    std::uintptr_t handle;
    std::uintptr_t handle_count;
    std::uintptr_t pointer_count;
    ULONG access;
    ULONG type;
    ULONG attributes;
    ULONG reserved;
};
constexpr int process_handles = 51;

// Of all processes.
struct SystemHandle {
    void* object;
    std::uintptr_t process;
    std::uintptr_t handle;
    ULONG access;
    USHORT creator;
    USHORT type;
    ULONG attributes;
    ULONG reserved;
};
constexpr int system_handles = 64;

// The header of either list.
struct ListHead {
    std::uintptr_t count;
    std::uintptr_t reserved;
};

template <typename Function>
Function* function(const char* name) {
    const HMODULE library = ::GetModuleHandleW(L"ntdll.dll");
    return reinterpret_cast<Function*>(reinterpret_cast<void*>(::GetProcAddress(library, name)));
}

// The entries that `query` returns; none if the system refuses. `query` takes a buffer, its size and where to
// write the required size. It may be called several times, as handles come and go.
template <typename Entry, typename Query>
std::vector<Entry> list(Query query) {
    constexpr ULONG largest = 1U << 28U;
    std::vector<std::byte> buffer(1U << 16U);
    while (buffer.size() <= largest) {
        ULONG needed = 0;
        const Status status = query(buffer.data(), static_cast<ULONG>(buffer.size()), &needed);
        if (status == too_short) {
            buffer.resize(std::max<std::size_t>(2 * buffer.size(), needed));
            continue;
        }
        if (status < 0) {
            break;
        }
        const auto* const head = reinterpret_cast<const ListHead*>(buffer.data());
        const auto* const first = reinterpret_cast<const Entry*>(head + 1);
        const std::size_t room = (buffer.size() - sizeof *head) / sizeof *first;
        return {first, first + std::min<std::size_t>(head->count, room)};
    }
    return {};
}

}  // namespace native

std::vector<HandleFacts> own_handles() {
    using namespace native;
    std::vector<HandleFacts> found;
    static auto* const process =
        function<Status WINAPI(HANDLE, int, void*, ULONG, ULONG*)>("NtQueryInformationProcess");
    if (process != nullptr) {
        for (const auto& entry : list<ProcessHandle>([](void* buffer, ULONG size, ULONG* needed) {
                 return process(::GetCurrentProcess(), process_handles, buffer, size, needed);
             })) {
            found.push_back({entry.handle, entry.type, entry.access});
        }
    }
    static auto* const system =
        function<Status WINAPI(int, void*, ULONG, ULONG*)>("NtQuerySystemInformation");
    if (found.empty() && system != nullptr) {
        for (const auto& entry : list<SystemHandle>([](void* buffer, ULONG size, ULONG* needed) {
                 return system(system_handles, buffer, size, needed);
             })) {
            if (entry.process == ::GetCurrentProcessId()) {
                found.push_back({entry.handle, entry.type, entry.access});
            }
        }
    }
    return found;
}

class OwnSocket {
public:
    OwnSocket() : socket_(::socket(AF_INET, SOCK_STREAM, IPPROTO_TCP)) {}
    OwnSocket(const OwnSocket&) = delete;
    OwnSocket& operator=(const OwnSocket&) = delete;
    ~OwnSocket() {
        if (socket_ != no_socket) {
            close_socket(socket_);
        }
    }
    [[nodiscard]] Socket get() const { return socket_; }

private:
    Socket socket_;
};

// The bytes of the system's answer to SIO_TCP_INFO, in `answer`; 0 if it doesn't know this version.
DWORD ask_tcp_info(Socket socket, DWORD version, void* answer, DWORD size) {
    DWORD written = 0;
    const int status =
        ::WSAIoctl(socket, SIO_TCP_INFO, &version, sizeof version, answer, size, &written, nullptr, nullptr);
    return status == 0 ? written : 0;
}

template <typename Answer>
TcpInfo common_readings(const Answer& answer) {
    TcpInfo info;
    // It is 0 before the first measurement.
    const auto measured = [](ULONG value) { return value == 0 ? Reading() : Reading(value); };
    info.rtt_us = measured(answer.RttUs);
    info.min_rtt_us = answer.MinRttUs == UINT32_MAX ? Reading() : measured(answer.MinRttUs);
    info.mss_bytes = measured(answer.Mss);
    info.cwnd_bytes = answer.Cwnd;
    info.in_flight_bytes = answer.BytesInFlight;
    info.bytes_sent = answer.BytesOut;
    info.bytes_received = answer.BytesIn;
    info.retransmitted_bytes = answer.BytesRetrans;
    info.timeout_episodes = answer.TimeoutEpisodes;
    return info;
}

}  // namespace

std::vector<Socket> socket_candidates() {
    // On Windows, asking an arbitrary handle whether it is a socket may block: a pipe that another thread reads
    // from would hold us up. A socket of our own shows how the kernel's list describes sockets; their access
    // rights differ from those of files and pipes.
    const OwnSocket example;
    const std::vector<HandleFacts> handles = own_handles();
    const auto known =
        std::ranges::find(handles, static_cast<std::uintptr_t>(example.get()), &HandleFacts::handle);
    if (known == handles.end()) {
        throw SystemError(Cause::other,
                          "Windows does not let this process list its handles, so its sockets are unknown");
    }
    std::vector<Socket> found;
    for (const auto& each : handles) {
        if (each.type == known->type && each.access == known->access && each.handle != known->handle) {
            found.push_back(static_cast<Socket>(each.handle));
        }
    }
    return found;
}

std::pair<std::string, TcpInfo> read_tcp_info(Socket socket) {
    constexpr std::uint64_t us_per_ms = 1000;
    TCP_INFO_v1 newer{};
    if (ask_tcp_info(socket, 1, &newer, sizeof newer) >= sizeof newer) {
        TcpInfo info = common_readings(newer);
        info.peer_limited_us = newer.SndLimTimeRwin * us_per_ms;
        info.buffer_limited_us = newer.SndLimTimeSnd * us_per_ms;
        return {"SIO_TCP_INFO 1", info};
    }
    TCP_INFO_v0 older{};
    if (ask_tcp_info(socket, 0, &older, sizeof older) >= sizeof older) {
        return {"SIO_TCP_INFO 0", common_readings(older)};
    }
    return {};
}

}  // namespace ddpdiag::platform
