#include "platform/sockets.hpp"

#include <array>
#include <cstring>
#include <tuple>

#include "platform/socket_reader.hpp"

namespace ddpdiag::platform {
namespace {

std::optional<int> option(Socket socket, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    if (::getsockopt(socket, SOL_SOCKET, name, static_cast<SocketOption*>(static_cast<void*>(&value)),
                     &size) != 0) {
        return std::nullopt;
    }
    return value;
}

std::optional<Address> address(const sockaddr_storage& storage) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (storage.ss_family == AF_INET) {
        sockaddr_in name{};
        std::memcpy(&name, &storage, sizeof name);
        ::inet_ntop(AF_INET, &name.sin_addr, text.data(), text.size());
        return Address{text.data(), ntohs(name.sin_port)};
    }
    if (storage.ss_family == AF_INET6) {
        sockaddr_in6 name{};
        std::memcpy(&name, &storage, sizeof name);
        ::inet_ntop(AF_INET6, &name.sin6_addr, text.data(), text.size());
        Address result{text.data(), ntohs(name.sin6_port)};
        if (const std::string mapped = "::ffff:"; IN6_IS_ADDR_V4MAPPED(&name.sin6_addr)) {
            result.ip.erase(0, mapped.size());
        }
        return result;
    }
    return std::nullopt;
}

// `get` is getsockname or getpeername.
template <typename Get>
std::optional<Address> address_of(Socket socket, Get get) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (get(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
        return std::nullopt;
    }
    return address(storage);
}

std::optional<TcpSocket> read(Socket socket) {
    // A stream of another protocol, such as AF_UNIX, has no such address.
    if (option(socket, SO_TYPE) != SOCK_STREAM) {
        return std::nullopt;
    }
    const auto local = address_of(socket, ::getsockname);
    if (!local || local->port == 0) {
        return std::nullopt;
    }
    TcpSocket result;
    result.handle = static_cast<std::uint64_t>(socket);
    result.local = *local;
    result.peer = address_of(socket, ::getpeername);
    result.listening = option(socket, SO_ACCEPTCONN).value_or(0) != 0;
    if (result.peer) {
        std::tie(result.source, result.info) = read_tcp_info(socket);
    }
    return result;
}

}  // namespace

std::vector<TcpSocket> tcp_sockets() {
    const SocketUse use;
    std::vector<TcpSocket> found;
    for (const Socket candidate : socket_candidates()) {
        if (auto socket = read(candidate)) {
            found.push_back(*std::move(socket));
        }
    }
    return found;
}

}  // namespace ddpdiag::platform
