// The sockets interface under names common to both systems.
#pragma once

#include <cstddef>

#ifdef _WIN32
// winsock2.h comes before windows.h, which would include an older one.
#include <winsock2.h>
#include <ws2tcpip.h>
#else
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#endif

namespace ddpdiag::platform {

#ifdef _WIN32

using Socket = SOCKET;
using SocketOption = char;
using SocketLength = int;
inline constexpr Socket no_socket = INVALID_SOCKET;

inline void close_socket(Socket socket) {
    ::closesocket(socket);
}

// Sockets work while one of these exists; Windows counts them.
class SocketUse {
public:
    SocketUse() : started_(::WSAStartup(MAKEWORD(2, 2), &data_) == 0) {}
    SocketUse(const SocketUse&) = delete;
    SocketUse& operator=(const SocketUse&) = delete;
    ~SocketUse() {
        if (started_) {
            ::WSACleanup();
        }
    }

private:
    WSADATA data_{};
    bool started_;
};

#else

using Socket = int;
using SocketOption = void;
using SocketLength = std::size_t;
inline constexpr Socket no_socket = -1;

inline void close_socket(Socket socket) {
    ::close(socket);
}

class SocketUse {
public:
    SocketUse() {}  // NOLINT(modernize-use-equals-default): else compilers call variables of this type unused
};

#endif

}  // namespace ddpdiag::platform
