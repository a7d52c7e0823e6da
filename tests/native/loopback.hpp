// Two connected sockets of this process and the listener that they met at, over IPv4 or IPv6.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "platform/socket_api.hpp"

class Loopback {
public:
    // Throws std::runtime_error with the step that the system refused, such as IPv6 where there is none.
    explicit Loopback(int family) : family_(family) {
        try {
            listener_ = open();
            sockaddr_storage name = any_port();
            socklen_t size = name_size();
            step("bind", ::bind(listener_, as_name(name), size));
            step("listen", ::listen(listener_, 1));
            step("getsockname", ::getsockname(listener_, as_name(name), &size));
            client_ = open();
            step("connect", ::connect(client_, as_name(name), size));
            server_ = ::accept(listener_, nullptr, nullptr);
            step("accept", server_ == ddpdiag::platform::no_socket ? -1 : 0);
        } catch (...) {
            close();
            throw;
        }
    }
    Loopback(const Loopback&) = delete;
    Loopback& operator=(const Loopback&) = delete;
    ~Loopback() { close(); }

    [[nodiscard]] std::uint64_t listener() const { return static_cast<std::uint64_t>(listener_); }
    [[nodiscard]] std::uint64_t client() const { return static_cast<std::uint64_t>(client_); }
    [[nodiscard]] std::uint64_t server() const { return static_cast<std::uint64_t>(server_); }

    // Passes `bytes` bytes from the client to the server, and waits until all have come.
    void transfer(std::size_t bytes) const {
        std::vector<char> piece(1U << 14U);
        while (bytes > 0) {
            const std::size_t length = bytes < piece.size() ? bytes : piece.size();
            const auto sent =
                ::send(client_, piece.data(), static_cast<ddpdiag::platform::SocketLength>(length), 0);
            step("send", sent <= 0 ? -1 : 0);
            for (auto left = sent; left > 0;) {
                const auto got =
                    ::recv(server_, piece.data(), static_cast<ddpdiag::platform::SocketLength>(left), 0);
                step("recv", got <= 0 ? -1 : 0);
                left -= got;
            }
            bytes -= static_cast<std::size_t>(sent);
        }
    }

private:
    static void step(const char* what, int status) {
        if (status != 0) {
            throw std::runtime_error(std::string("loopback: cannot ") + what);
        }
    }
    static sockaddr* as_name(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }

    [[nodiscard]] ddpdiag::platform::Socket open() const {
        const auto opened = ::socket(family_, SOCK_STREAM, 0);
        step("open", opened == ddpdiag::platform::no_socket ? -1 : 0);
        return opened;
    }
    [[nodiscard]] socklen_t name_size() const {
        return family_ == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    }
    [[nodiscard]] sockaddr_storage any_port() const {
        sockaddr_storage storage{};
        if (family_ == AF_INET) {
            sockaddr_in name{};
            name.sin_family = AF_INET;
            name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            std::memcpy(&storage, &name, sizeof name);
        } else {
            sockaddr_in6 name{};
            name.sin6_family = AF_INET6;
            name.sin6_addr = in6addr_loopback;
            std::memcpy(&storage, &name, sizeof name);
        }
        return storage;
    }
    void close() {
        for (const auto socket : {client_, server_, listener_}) {
            if (socket != ddpdiag::platform::no_socket) {
                ddpdiag::platform::close_socket(socket);
            }
        }
    }

    ddpdiag::platform::SocketUse use_;
    int family_;
    ddpdiag::platform::Socket listener_ = ddpdiag::platform::no_socket;
    ddpdiag::platform::Socket client_ = ddpdiag::platform::no_socket;
    ddpdiag::platform::Socket server_ = ddpdiag::platform::no_socket;
};
