"""The sockets of this process, under the name that scripts import: `pyddpdiag.sockets.tcp_sockets()`."""

from pyddpdiag.record.sockets import TcpSocket, tcp_sockets

__all__ = ["TcpSocket", "tcp_sockets"]
