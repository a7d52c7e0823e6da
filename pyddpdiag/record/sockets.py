"""The TCP sockets of this process, including Gloo's, and what the system knows about each connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyddpdiag._loader import load
from pyddpdiag.errors import SocketsError

_native = load()


@dataclass(frozen=True)
class TcpSocket:
    """One bound TCP socket of this process.

    `local` and `peer` are IP address and port; two ends of one connection name each other, even if one of
    them is an IPv6 socket that carries IPv4. `peer` is None for a socket that is not connected.

    `info` holds readings by name, with the unit in the name (`TCP_INFO`, `SIO_TCP_INFO`). Readings that this
    system doesn't provide, or has not measured yet, are missing. `source` says which interface they came
    from: "TCP_INFO" on Linux, "SIO_TCP_INFO 1" or "SIO_TCP_INFO 0" on Windows, "" if the system provides
    none.
    """

    handle: int
    local: tuple[str, int]
    peer: tuple[str, int] | None
    listening: bool
    source: str
    info: Mapping[str, int]


def tcp_sockets() -> list[TcpSocket]:
    """Every bound TCP socket of this process, whoever opened it, with a fresh reading of each connection.

    It costs some microseconds per socket on Linux, and does not touch what the sockets carry.

    Raises:
        SocketsError: the system does not let a process list its own handles.
    """
    try:
        return [TcpSocket(*each) for each in _native.tcp_sockets()]
    except OSError as error:
        raise SocketsError(
            str(error.args[-1]),
            hint="on Linux, /proc must be mounted; elsewhere, report this with the system's version",
        ) from error
