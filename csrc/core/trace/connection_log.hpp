// Readings of this process's TCP connections, written into the trace as they change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/trace/trace_file.hpp"
#include "platform/sockets.hpp"

namespace ddpdiag {

// The name of a connection: "LOCAL|PEER", each as "IP:PORT". Its other end is named by the same two, exchanged.
[[nodiscard]] std::string connection_name(const platform::TcpSocket& socket);

// A record of the readings of a connected socket; `reference` is the FNV-1a of its name.
[[nodiscard]] Record connection_record(const platform::TcpSocket& socket, std::uint64_t name_hash,
                                       std::int64_t monotonic_ns, std::uint32_t step);

// Not for several threads at once.
class ConnectionLog {
public:
    explicit ConnectionLog(TraceFile& trace) : trace_(&trace) {}

    // Writes a record for each connection that carried or lost something since its last record, and names it before
    // its first. `sockets`: all sockets of this process. At most `most` connections are followed.
    void take(const std::vector<platform::TcpSocket>& sockets, std::int64_t monotonic_ns, std::uint32_t step);

    static constexpr std::size_t most = 256;

private:
    struct Followed {
        Record last{};
        std::uint64_t named_at = 0;  // tickets given out when the name was written
        bool named = false;
        bool there = false;
    };
    void name(const std::string& text, std::uint64_t hash, std::uint32_t step);

    TraceFile* trace_;
    std::unordered_map<std::uint64_t, Followed> followed_;
};

}  // namespace ddpdiag
