"""TCP ports: who listens there, and whether they can be reached. Every wait here has its own limit."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import psutil

from pyddpdiag.output import clean

_REFUSED: Final = {errno.ECONNREFUSED, 10061}
_NONCE: Final = b"\x07\x00\x00\x00"
# Of torch's own protocol: VALIDATE with its magic number, then PING, whose answer is the nonce.
_GREETING: Final = b"\x00" + (0x3C85F7CE).to_bytes(4, "little") + b"\x0d" + _NONCE
# What every host must take (IPv4's 576 bytes, without headers).
_SMALL: Final = 536
_UNROUTABLE: Final = {errno.ENETUNREACH, errno.EHOSTUNREACH, 10051, 10065}


class Reach(Enum):
    """How an attempt to connect ended."""

    OPEN = "open"
    REFUSED = "refused"
    FILTERED = "filtered"
    UNROUTABLE = "unroutable"
    FAILED = "failed"


@dataclass(frozen=True)
class Holder:
    """The process that listens on a port, or locks a file; `pid` is None if the system does not reveal it."""

    pid: int | None
    name: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name})" if self.pid is not None else "a process of another user"


def holder(port: int) -> Holder | None:
    """Who listens on this TCP port of this machine; None if nobody does, or the system does not tell."""
    for one in _connections():
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port:
            return Holder(None, "") if one.pid is None else named(one.pid)
    return None


def named(pid: int) -> Holder:
    """A process by its id, with its name where the system tells it."""
    try:
        return Holder(pid, clean(psutil.Process(pid).name(), 60))
    except (OSError, psutil.Error, OverflowError):
        return Holder(pid, "unknown")


def free_port(near: int) -> int:
    """A TCP port that nobody listens on, soon after `near`; the next one where the system does not tell."""
    taken = {one.laddr.port for one in _connections() if one.laddr}
    return next((port for port in range(near + 1, min(near + 100, 65536)) if port not in taken), near + 1)


def _connections() -> list[Any]:
    """The TCP sockets of this machine; none where the system does not tell."""
    try:
        return list(psutil.net_connections(kind="tcp"))
    except (OSError, psutil.Error):
        return []


def why(error: OSError) -> Reach:
    """The class of an error of `connect`."""
    if isinstance(error, TimeoutError) or error.errno in (errno.ETIMEDOUT, 10060):
        return Reach.FILTERED
    if error.errno in _REFUSED:
        return Reach.REFUSED
    return Reach.UNROUTABLE if error.errno in _UNROUTABLE else Reach.FAILED


def small_packets(connection: socket.socket) -> None:
    """Has a socket that is not connected yet use packets that get through everywhere, where the system can."""
    option = getattr(socket, "TCP_MAXSEG", None)
    if option is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, option, _SMALL)


def family(address: str) -> socket.AddressFamily:
    """The family of sockets for an IP address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def try_connect(
    address: str, port: int, timeout_s: float, *, small: bool = False
) -> tuple[Reach, socket.socket | None]:
    """Connects to an IP address; the open socket comes with `Reach.OPEN`. `small`: see `small_packets`."""
    probe = socket.socket(family(address), socket.SOCK_STREAM)
    probe.settimeout(timeout_s)
    if small:
        small_packets(probe)
    try:
        probe.connect((address, port))
    except OSError as error:
        probe.close()
        return why(error), None
    return Reach.OPEN, probe


def resolve(name: str, timeout_s: float, *, ipv4_first: bool = True) -> list[str] | None:
    """The addresses of a host name; empty if it has none, None if there was no answer in time.

    `timeout_s`: longest wait for the name server, in seconds. `ipv4_first`: False keeps the system's order.
    """
    found: list[list[str]] = []

    def look() -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            found.append([])
            return
        if ipv4_first:
            answers.sort(key=lambda answer: answer[0] != socket.AF_INET)
        found.append(list(dict.fromkeys(str(answer[4][0]) for answer in answers)))

    # A name server that is not there keeps getaddrinfo for longer than anybody wants to wait.
    thread = threading.Thread(target=look, name="pyddpdiag-resolve", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return found[0] if found else None


class Answer(Enum):
    """Who answers at the address of a store."""

    STORE = "a torch store"
    SILENT = "a program that accepts connections and says nothing"
    OTHER_PROGRAM = "another program"
    NOBODY = "nobody"


def ask_store(address: str, port: int, timeout_s: float) -> tuple[Answer, Reach]:
    """Greets whoever listens there as a torch store's client does. Ranks would wait for one that is silent for ever."""
    limit = time.monotonic() + timeout_s
    reach, probe = try_connect(address, port, timeout_s)
    if probe is None:
        return Answer.NOBODY, reach
    with probe:
        try:
            probe.sendall(_GREETING)
            answer = b""
            while len(answer) < len(_NONCE):
                probe.settimeout(max(0.1, limit - time.monotonic()))
                more = probe.recv(len(_NONCE))
                if not more:
                    break
                answer += more
        except TimeoutError:
            return Answer.SILENT, reach
        except OSError:
            return Answer.OTHER_PROGRAM, reach
    return (Answer.STORE if answer == _NONCE else Answer.OTHER_PROGRAM), reach
