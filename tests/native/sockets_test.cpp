#include "platform/sockets.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "loopback.hpp"
#include "scratch.hpp"

namespace {

namespace platform = ddpdiag::platform;
using platform::TcpSocket;

std::optional<TcpSocket> find(std::uint64_t handle) {
    const auto all = platform::tcp_sockets();
    const auto found = std::ranges::find(all, handle, &TcpSocket::handle);
    return found == all.end() ? std::nullopt : std::optional(*found);
}

std::unique_ptr<Loopback> over_ipv6() {
    try {
        return std::make_unique<Loopback>(AF_INET6);
    } catch (const std::runtime_error& error) {
        SKIP(std::string("no IPv6 here: ") + error.what());
    }
}

// The client's end, with what the system tells of it.
TcpSocket reading_of(const Loopback& pair) {
    const auto client = find(pair.client());
    REQUIRE(client.has_value());
    if (client->source.empty()) {
        SKIP("this system tells nothing of a connection");
    }
    return *client;
}

// Both ends of a connection are found, and each names the other.
void check_ends(const Loopback& pair, const std::string& ip) {
    const auto client = find(pair.client());
    const auto server = find(pair.server());
    REQUIRE(client && server);
    CHECK_EQ(client->local.ip, ip);
    CHECK_EQ(server->local.ip, ip);
    CHECK(client->local.port != 0);
    CHECK(client->local.port != server->local.port);
    CHECK(client->peer == server->local);
    CHECK(server->peer == client->local);
    CHECK(!client->listening);
    CHECK(!server->listening);
}

}  // namespace

CASE("both ends of a connection are found with their addresses") {
    check_ends(Loopback(AF_INET), "127.0.0.1");
}

CASE("both ends of an IPv6 connection are found with their addresses") {
    check_ends(*over_ipv6(), "::1");
}

CASE("a listener is found without a peer, and nothing is read of it") {
    const Loopback pair(AF_INET);
    const auto listener = find(pair.listener());
    REQUIRE(listener.has_value());
    CHECK(listener->listening);
    CHECK(!listener->peer.has_value());
    CHECK_EQ(listener->local.ip, std::string("127.0.0.1"));
    CHECK(listener->source.empty());
    for (const auto& [name, reading] : platform::tcp_info_readings) {
        CHECK(!(listener->info.*reading).has_value());
    }
}

CASE("a closed socket is found no more") {
    std::uint64_t handle = 0;
    platform::Address local;
    {
        const Loopback pair(AF_INET);
        handle = pair.client();
        const auto client = find(handle);
        REQUIRE(client.has_value());
        local = client->local;
    }
    const auto now = find(handle);
    CHECK(!now || now->local != local);
}

CASE("many connections are found, each once") {
    std::vector<std::unique_ptr<Loopback>> pairs;
    std::set<std::uint64_t> opened;
    for (int i = 0; i < 40; ++i) {
        pairs.push_back(std::make_unique<Loopback>(AF_INET));
        opened.insert({pairs.back()->listener(), pairs.back()->client(), pairs.back()->server()});
    }
    std::multiset<std::uint64_t> found;
    for (const auto& socket : platform::tcp_sockets()) {
        if (opened.contains(socket.handle)) {
            found.insert(socket.handle);
        }
    }
    CHECK_EQ(found.size(), opened.size());
    CHECK(std::ranges::equal(found, opened));
}

CASE("a process without connections has none, and files are no sockets") {
    const Scratch folder;
    std::ofstream file(folder / "open");
    file << "text";
    CHECK_EQ(platform::tcp_sockets().size(), 0U);
}

CASE("sockets that come and go meanwhile do no harm") {
    const Loopback steady(AF_INET);
    std::atomic<bool> stop = false;
    std::thread churn([&] {
        while (!stop) {
            const Loopback passing(AF_INET);
        }
    });
    int seen = 0;
    constexpr int rounds = 50;
    for (int i = 0; i < rounds; ++i) {
        const auto client = find(steady.client());
        seen += client && client->peer ? 1 : 0;
    }
    stop = true;
    churn.join();
    CHECK_EQ(seen, rounds);
}

CASE("what was sent and received is counted") {
    constexpr std::uint64_t bytes = 1'000'000;
    const Loopback pair(AF_INET);
    const auto before = reading_of(pair);
    pair.transfer(bytes);
    const auto after = reading_of(pair);
    REQUIRE(before.info.bytes_sent && after.info.bytes_sent);
    CHECK_EQ(*after.info.bytes_sent - *before.info.bytes_sent, bytes);
    const auto server = find(pair.server());
    REQUIRE(server.has_value());
    CHECK_EQ(server->info.bytes_received.value_or(0), bytes);
    CHECK_EQ(after.info.bytes_received.value_or(bytes), 0U);
}

CASE("a sound connection has a round trip, a window and no loss") {
    const Loopback pair(AF_INET);
    pair.transfer(1'000'000);
    const auto client = reading_of(pair);
    const auto& info = client.info;
    CHECK(client.source == "TCP_INFO" || client.source == "SIO_TCP_INFO 1" ||
          client.source == "SIO_TCP_INFO 0");
    REQUIRE(info.rtt_us && info.cwnd_bytes && info.mss_bytes && info.retransmitted_bytes);
    CHECK(*info.rtt_us < 1'000'000);
    CHECK(*info.mss_bytes >= 500);
    CHECK(*info.cwnd_bytes >= *info.mss_bytes);
    CHECK_EQ(*info.retransmitted_bytes, 0U);
    CHECK(!info.min_rtt_us || *info.min_rtt_us <= *info.rtt_us);
}

CASE("what only one system tells is empty on the other") {
    const Loopback pair(AF_INET);
    pair.transfer(1'000'000);
    const auto client = reading_of(pair);
    const auto& info = client.info;
    const bool on_linux = client.source == "TCP_INFO";
    CHECK_EQ(info.busy_us.has_value(), on_linux);
    CHECK_EQ(info.unacked_segments.has_value(), on_linux);
    CHECK_EQ(info.backoff.has_value(), on_linux);
    CHECK_EQ(info.retransmitted_segments.has_value(), on_linux);
    CHECK_EQ(info.in_flight_bytes.has_value(), !on_linux);
    CHECK_EQ(info.timeout_episodes.has_value(), !on_linux);
    if (on_linux) {
        CHECK(info.data_segments_out.value_or(0) > 0);
        // The handshake counts as a byte.
        CHECK(info.bytes_acked.value_or(0) <= info.bytes_sent.value_or(0) + 2);
        CHECK(info.delivery_bytes_per_s.value_or(0) > 0);
    }
}
