// What sockets.cpp needs from linux_sockets.cpp and windows_sockets.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "platform/socket_api.hpp"
#include "platform/sockets.hpp"

namespace ddpdiag::platform {

// Handles of this process that may be sockets. Asking one for its type neither blocks nor disturbs it, whatever it
// is.
[[nodiscard]] std::vector<Socket> socket_candidates();

// What the system reports about a connected socket, and the name of the interface that reported it; empty if there
// is none.
[[nodiscard]] std::pair<std::string, TcpInfo> read_tcp_info(Socket socket);

}  // namespace ddpdiag::platform
