// The TCP sockets of this process, whoever opened them, and what the system knows about each connection.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddpdiag::platform {

// An end of a connection. An IPv4 address inside an IPv6 one is written as IPv4, so that both ends of a
// connection write it the same way; a scope has a meaning only on its own machine, so it is left out.
struct Address {
    std::string ip;
    std::uint16_t port = 0;
    bool operator==(const Address&) const = default;
};

using Reading = std::optional<std::uint64_t>;

// What a system reports about a connection. Values that it doesn't know, or has not measured yet, are empty
// and never 0.
struct TcpInfo {
    Reading rtt_us;
    Reading rttvar_us;
    Reading min_rtt_us;
    Reading mss_bytes;
    Reading cwnd_bytes;
    Reading unacked_segments;
    Reading in_flight_bytes;
    Reading notsent_bytes;
    Reading data_segments_out;
    Reading bytes_sent;
    Reading bytes_acked;
    Reading bytes_received;
    Reading retransmitted_segments;  // since the connection was made
    Reading retransmitted_bytes;
    Reading retransmit_timeouts;  // in a row, without an answer yet
    Reading timeout_episodes;     // since the connection was made
    Reading total_rto;            // timeouts of the retransmission timer since the connection was made
    Reading total_rto_ms;         // spent in recovering from them
    Reading dsack_dups;           // segments that the peer had received twice: retransmitted for nothing
    Reading rcv_ooopack;          // segments received out of order
    Reading backoff;              // doublings of the retransmission timer
    Reading busy_us;              // with something to send or unacknowledged
    Reading peer_limited_us;      // of that, waiting for the peer's receive window
    Reading buffer_limited_us;    // of that, waiting for the sender's buffer
    Reading delivery_bytes_per_s;
};

// The names of the readings, for callers that pass on all of them.
inline constexpr std::array<std::pair<const char*, Reading TcpInfo::*>, 25> tcp_info_readings{{
    {"rtt_us", &TcpInfo::rtt_us},
    {"rttvar_us", &TcpInfo::rttvar_us},
    {"min_rtt_us", &TcpInfo::min_rtt_us},
    {"mss_bytes", &TcpInfo::mss_bytes},
    {"cwnd_bytes", &TcpInfo::cwnd_bytes},
    {"unacked_segments", &TcpInfo::unacked_segments},
    {"in_flight_bytes", &TcpInfo::in_flight_bytes},
    {"notsent_bytes", &TcpInfo::notsent_bytes},
    {"data_segments_out", &TcpInfo::data_segments_out},
    {"bytes_sent", &TcpInfo::bytes_sent},
    {"bytes_acked", &TcpInfo::bytes_acked},
    {"bytes_received", &TcpInfo::bytes_received},
    {"retransmitted_segments", &TcpInfo::retransmitted_segments},
    {"retransmitted_bytes", &TcpInfo::retransmitted_bytes},
    {"retransmit_timeouts", &TcpInfo::retransmit_timeouts},
    {"timeout_episodes", &TcpInfo::timeout_episodes},
    {"total_rto", &TcpInfo::total_rto},
    {"total_rto_ms", &TcpInfo::total_rto_ms},
    {"dsack_dups", &TcpInfo::dsack_dups},
    {"rcv_ooopack", &TcpInfo::rcv_ooopack},
    {"backoff", &TcpInfo::backoff},
    {"busy_us", &TcpInfo::busy_us},
    {"peer_limited_us", &TcpInfo::peer_limited_us},
    {"buffer_limited_us", &TcpInfo::buffer_limited_us},
    {"delivery_bytes_per_s", &TcpInfo::delivery_bytes_per_s},
}};

struct TcpSocket {
    std::uint64_t handle = 0;  // the descriptor of Linux, the SOCKET of Windows
    Address local;
    std::optional<Address> peer;  // empty: not connected
    bool listening = false;
    // Which interface of the system filled `info`: "TCP_INFO", "SIO_TCP_INFO 1" or "SIO_TCP_INFO 0". Empty:
    // the system reports nothing about this socket.
    std::string source;
    TcpInfo info;
};

// Every bound TCP socket, IPv4 and IPv6. Sockets that are opened or closed meanwhile may be missing.
// Throws SystemError if the system does not let a process list its own handles.
[[nodiscard]] std::vector<TcpSocket> tcp_sockets();

}  // namespace ddpdiag::platform
