#include <linux/tcp.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "platform/platform.hpp"
#include "platform/socket_reader.hpp"

namespace ddpdiag::platform {
namespace {

// The part of the kernel's tcp_info that is read here. The struct only grows at its end, so the installed headers
// may know less of it than the running kernel, or more.
struct KernelTcpInfo {
    std::uint8_t state;
    std::uint8_t congestion_state;
    std::uint8_t retransmits;
    std::uint8_t probes;
    std::uint8_t backoff;
    std::uint8_t bits[3];
    std::uint32_t timeout_us[2];
    std::uint32_t snd_mss;
    std::uint32_t rcv_mss;
    std::uint32_t unacked;
    std::uint32_t losses[4];
    std::uint32_t last_ms[4];
    std::uint32_t pmtu;
    std::uint32_t rcv_ssthresh;
    std::uint32_t rtt_us;
    std::uint32_t rttvar_us;
    std::uint32_t snd_ssthresh;
    std::uint32_t snd_cwnd;
    std::uint32_t receive_side[4];
    std::uint32_t total_retrans;
    std::uint64_t pacing_rate[2];
    std::uint64_t bytes_acked;
    std::uint64_t bytes_received;
    std::uint32_t segments[2];
    std::uint32_t notsent_bytes;
    std::uint32_t min_rtt_us;
    std::uint32_t data_segs_in;
    std::uint32_t data_segs_out;
    std::uint64_t delivery_rate;
    std::uint64_t busy_us;
    std::uint64_t rwnd_limited_us;
    std::uint64_t sndbuf_limited_us;
    std::uint32_t delivered[2];
    std::uint64_t bytes_sent;
    std::uint64_t bytes_retrans;
    std::uint32_t dsack_dups;  // from here on to the windows: Linux 4.19 to 5.4
    std::uint32_t reord_seen;
    std::uint32_t rcv_ooopack;
    std::uint32_t windows[2];
    std::uint32_t rehash;
    std::uint16_t total_rto;  // Linux 6.7
    std::uint16_t total_rto_recoveries;
    std::uint32_t total_rto_ms;
};
static_assert(offsetof(KernelTcpInfo, rtt_us) == offsetof(tcp_info, tcpi_rtt));
static_assert(offsetof(KernelTcpInfo, total_retrans) == offsetof(tcp_info, tcpi_total_retrans));
static_assert(offsetof(KernelTcpInfo, sndbuf_limited_us) == offsetof(tcp_info, tcpi_sndbuf_limited));
static_assert(offsetof(KernelTcpInfo, bytes_retrans) == 208);
static_assert(offsetof(KernelTcpInfo, total_rto_ms) == 244);

}  // namespace

std::vector<Socket> socket_candidates() {
    std::error_code error;
    std::vector<Socket> found;
    // Any descriptor answers at once whether it is a socket, so all are asked.
    for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        Socket descriptor = no_socket;
        if (std::from_chars(name.data(), name.data() + name.size(), descriptor).ec == std::errc()) {
            found.push_back(descriptor);
        }
    }
    if (error) {
        throw SystemError(Cause::other,
                          "cannot list this process's descriptors in /proc/self/fd: " + error.message());
    }
    return found;
}

std::pair<std::string, TcpInfo> read_tcp_info(Socket socket) {
    KernelTcpInfo raw{};
    socklen_t length = sizeof raw;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &raw, &length) != 0) {
        return {};
    }
    // Empty beyond the end of this kernel's struct.
    const auto read = [&raw, length](const auto& field) -> Reading {
        const auto end = reinterpret_cast<const std::byte*>(&field + 1) - reinterpret_cast<std::byte*>(&raw);
        return std::cmp_less_equal(end, length) ? Reading(field) : std::nullopt;
    };
    // Also empty if the kernel has not measured it yet.
    const auto measured = [&read](const auto& field) {
        const Reading value = read(field);
        return value == 0U ? std::nullopt : value;
    };
    TcpInfo info;
    info.rtt_us = measured(raw.rtt_us);
    info.rttvar_us = info.rtt_us ? read(raw.rttvar_us) : std::nullopt;
    info.min_rtt_us = raw.min_rtt_us == UINT32_MAX ? std::nullopt : measured(raw.min_rtt_us);
    info.mss_bytes = measured(raw.snd_mss);
    info.cwnd_bytes = std::uint64_t{raw.snd_cwnd} * raw.snd_mss;
    info.unacked_segments = read(raw.unacked);
    info.notsent_bytes = read(raw.notsent_bytes);
    info.data_segments_out = read(raw.data_segs_out);
    info.bytes_sent = read(raw.bytes_sent);
    info.bytes_acked = read(raw.bytes_acked);
    info.bytes_received = read(raw.bytes_received);
    info.retransmitted_segments = read(raw.total_retrans);
    info.retransmitted_bytes = read(raw.bytes_retrans);
    info.retransmit_timeouts = read(raw.retransmits);
    info.backoff = read(raw.backoff);
    info.dsack_dups = read(raw.dsack_dups);
    info.rcv_ooopack = read(raw.rcv_ooopack);
    info.total_rto = read(raw.total_rto);
    info.total_rto_ms = read(raw.total_rto_ms);
    info.busy_us = read(raw.busy_us);
    info.peer_limited_us = read(raw.rwnd_limited_us);
    info.buffer_limited_us = read(raw.sndbuf_limited_us);
    info.delivery_bytes_per_s = measured(raw.delivery_rate);
    return {"TCP_INFO", info};
}

}  // namespace ddpdiag::platform
