// What sockets.cpp needs of linux_sockets.cpp and windows_sockets.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "platform/socket_api.hpp"
#include "platform/sockets.hpp"

namespace ddpdiag::platform {

// Handles of this process that may be sockets. Asking such a one for its type must neither block nor disturb
// it, whatever it is.
[[nodiscard]] std::vector<Socket> socket_candidates();

// What the system tells of a connected socket and the interface that told it; an empty name if none did.
[[nodiscard]] std::pair<std::string, TcpInfo> read_tcp_info(Socket socket);

}  // namespace ddpdiag::platform
