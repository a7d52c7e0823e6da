#include "core/trace/connection_log.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/trace/hash.hpp"
#include "core/trace/pulse.hpp"
#include "loopback.hpp"
#include "records.hpp"
#include "scratch.hpp"

namespace {

namespace platform = ddpdiag::platform;
using ddpdiag::ConnectionLog;
using ddpdiag::Record;
using ddpdiag::TraceFile;
namespace value = ddpdiag::connection_value;

constexpr std::uint64_t no_half = 0xFFFFFFFF;

platform::TcpSocket socket_to(std::uint16_t port, std::uint64_t sent) {
    platform::TcpSocket socket;
    socket.local = {.ip = "10.0.0.1", .port = 5000};
    socket.peer = platform::Address{.ip = "10.0.0.2", .port = port};
    socket.source = "TCP_INFO";
    socket.info.bytes_sent = sent;
    return socket;
}

std::vector<Record> readings(const TraceFile& trace) {
    std::vector<Record> found;
    for (std::size_t i = 0; i < trace.capacity(); ++i) {
        if (const auto record = trace.read(i); record && (record->flags & ddpdiag::flag_name) == 0) {
            found.push_back(*record);
        }
    }
    return found;
}

// The parts of the connection's name, put together in the order of their slots.
std::string name_of(const TraceFile& trace, std::uint64_t hash) {
    std::string text;
    for (std::size_t i = 0; i < trace.capacity(); ++i) {
        const auto record = trace.read(i);
        if (record && record->reference == hash && (record->flags & ddpdiag::flag_name) != 0) {
            const auto* const piece = reinterpret_cast<const char*>(record->times);
            text.append(piece, strnlen(piece, ddpdiag::text_size));
        }
    }
    return text;
}

std::uint64_t low(std::int64_t word) {
    return static_cast<std::uint64_t>(word) & no_half;
}

std::uint64_t high(std::int64_t word) {
    return static_cast<std::uint64_t>(word) >> 32U;
}

}  // namespace

CASE("a record holds each reading in its place, and ones where there is none") {
    platform::TcpSocket socket = socket_to(6000, 7);
    socket.info.bytes_acked = 6;
    socket.info.busy_us = 5;
    socket.info.data_segments_out = 4;
    socket.info.retransmitted_segments = 3;
    socket.info.dsack_dups = 2;
    socket.info.min_rtt_us = 1;
    socket.info.unacked_segments = 9;
    socket.info.notsent_bytes = 8;
    socket.info.total_rto = 12;
    socket.info.backoff = 10;
    socket.info.retransmit_timeouts = 70'000;  // more than its 16 bits hold
    const Record record = ddpdiag::connection_record(socket, 77, 11, 13);
    CHECK_EQ(record.kind, 9);
    CHECK_EQ(record.reference, 77U);
    CHECK_EQ(record.step, 13U);
    CHECK_EQ(record.times[value::at], 11);
    CHECK_EQ(record.times[value::bytes_sent], 7);
    CHECK_EQ(record.times[value::bytes_acked], 6);
    CHECK_EQ(record.times[value::bytes_received], -1);
    CHECK_EQ(record.times[value::busy_us], 5);
    CHECK_EQ(low(record.times[value::segments]), 4U);
    CHECK_EQ(high(record.times[value::segments]), 3U);
    CHECK_EQ(low(record.times[value::unusual]), 2U);
    CHECK_EQ(high(record.times[value::unusual]), no_half);
    CHECK_EQ(low(record.times[value::round_trips]), 1U);
    CHECK_EQ(high(record.times[value::round_trips]), no_half);
    CHECK_EQ(record.sequence, 9U | (std::uint64_t{8} << 32U));
    CHECK_EQ(record.group, 12U | (no_half << 32U));
    CHECK_EQ(record.bytes, ~std::uint64_t{0});
    CHECK_EQ(record.module, no_half);
    CHECK_EQ(record.index, 10U | (std::uint32_t{0xFFFE} << 16U));
}

CASE("a connection is named once, and recorded when it has changed") {
    const Scratch folder;
    TraceFile trace(folder / "trace", records::small_ring());
    ConnectionLog log(trace);
    log.take({socket_to(6000, 1)}, 10, 0);
    log.take({socket_to(6000, 1)}, 20, 0);
    log.take({socket_to(6000, 2)}, 30, 1);
    const auto found = readings(trace);
    REQUIRE(found.size() == 2);
    CHECK_EQ(found[0].times[value::at], 10);
    CHECK_EQ(found[1].times[value::at], 30);
    CHECK_EQ(found[1].times[value::bytes_sent], 2);
    CHECK_EQ(name_of(trace, found[0].reference), std::string("10.0.0.1:5000|10.0.0.2:6000"));
    CHECK_EQ(found[0].reference, ddpdiag::fnv1a("10.0.0.1:5000|10.0.0.2:6000"));
    CHECK_EQ(trace.counters().tickets, 3U);
}

CASE("a long name takes several parts") {
    const Scratch folder;
    TraceFile trace(folder / "trace", records::small_ring());
    platform::TcpSocket socket = socket_to(6000, 1);
    socket.local.ip = "2001:db8:1111:2222:3333:4444:5555:6666";
    socket.peer = platform::Address{.ip = "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff", .port = 6000};
    ConnectionLog(trace).take({socket}, 10, 0);
    const std::string name = ddpdiag::connection_name(socket);
    CHECK(name.size() > ddpdiag::text_size);
    CHECK_EQ(name_of(trace, ddpdiag::fnv1a(name)), name);
}

CASE("listeners, loose sockets and those of which nothing is known are not recorded") {
    const Scratch folder;
    TraceFile trace(folder / "trace", records::small_ring());
    auto listening = socket_to(6000, 1);
    listening.listening = true;
    auto loose = socket_to(6001, 1);
    loose.peer.reset();
    auto untold = socket_to(6002, 1);
    untold.source.clear();
    ConnectionLog(trace).take({listening, loose, untold}, 10, 0);
    CHECK_EQ(trace.counters().tickets, 0U);
}

CASE("at most so many connections are followed, and closed ones make room") {
    const Scratch folder;
    TraceFile trace(folder / "trace", ddpdiag::TraceOptions{});
    ConnectionLog log(trace);
    std::vector<platform::TcpSocket> sockets;
    sockets.reserve(ConnectionLog::most + 10);
    for (std::uint16_t port = 0; port < ConnectionLog::most + 10; ++port) {
        sockets.push_back(socket_to(static_cast<std::uint16_t>(6000 + port), 1));
    }
    log.take(sockets, 10, 0);
    CHECK_EQ(readings(trace).size(), ConnectionLog::most);
    log.take({sockets.back()}, 20, 0);  // the others are gone
    log.take({sockets.back()}, 30, 0);
    CHECK_EQ(readings(trace).size(), ConnectionLog::most + 1);
}

CASE("a name is written again before the ring has come round") {
    const Scratch folder;
    TraceFile trace(folder / "trace", records::small_ring());
    ConnectionLog log(trace);
    std::uint64_t hash = 0;
    for (std::uint64_t i = 0; i < 4 * trace.capacity(); ++i) {
        log.take({socket_to(6000, i)}, static_cast<std::int64_t>(i), 0);
        hash = ddpdiag::fnv1a("10.0.0.1:5000|10.0.0.2:6000");
        CHECK(!name_of(trace, hash).empty());
    }
}

CASE("a real connection is recorded by a pulse while others write the same trace") {
    const Scratch folder;
    TraceFile trace(folder / "trace", ddpdiag::TraceOptions{});
    const Loopback pair(AF_INET);
    ConnectionLog log(trace);
    {
        ddpdiag::Pulse pulse(
            [&] {
                trace.beat(platform::monotonic_ns());
                log.take(platform::tcp_sockets(), platform::monotonic_ns(), 0);
            },
            std::chrono::milliseconds(1));
        for (std::uint64_t i = 0; i < 300; ++i) {
            trace.write(records::from_seed(i));
            pair.transfer(1000);
        }
    }
    std::optional<Record> last;
    for (const Record& record : readings(trace)) {
        if (record.kind == 9 && record.times[value::bytes_sent] > 0) {
            last = record;
        }
    }
    if (!last) {
        SKIP("this system tells nothing of a connection");
    }
    // The last beat comes after the last transfer.
    CHECK_EQ(last->times[value::bytes_sent], 300'000);
    CHECK(name_of(trace, last->reference).starts_with("127.0.0.1:"));
}
