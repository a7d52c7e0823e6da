"""Tries another rank's address: connects, measures round trips and rate, and writes packets of full size."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Final

from pyddpdiag.doctor.mesh.facts import Facts, Spot
from pyddpdiag.ranks.tcp import Reach, family, try_connect

CONNECT_S: Final = 3.5
_PINGS = 15
_PING = b"p" * 32
# Some full packets; then blocks that take a fast link a while.
_FIRST = 16 * 1024
_BLOCK = 256 * 1024
_MOST_BLOCKS = 16
_RATE_S = 0.4
_STALL_S = 3.0
# Sizes to try where full packets get lost.
_SEGMENTS: Final = (1360, 1260, 1160, 960, 536)
# IP and TCP headers.
_HEADERS: Final = {socket.AF_INET: 40, socket.AF_INET6: 60}
# An interface with a smaller MTU loses its IPv6 addresses.
_LEAST_MTU: Final = {socket.AF_INET: 0, socket.AF_INET6: 1280}


@dataclass(frozen=True)
class Attempt:
    """How one rank got to an address of another.

    Attributes:
        rank: the caller.
        peer: whose address it is.
        interface: of the peer.
        address: likewise.
        source: the caller's own address on the way there.
        state: "ok", "refused", "filtered", "unroutable", "mtu hole", "stranger" or "failed".
        rtt_ms: median round trip.
        mbit: rate of the median block.
        mtu: where packets of full size get lost: the largest that gets through; 0 if none does.
    """

    rank: int
    peer: int
    interface: str
    address: str
    source: str
    state: str
    rtt_ms: float | None = None
    mbit: float | None = None
    mtu: int | None = None

    @property
    def ok(self) -> bool:
        """Whether Gloo could use it."""
        return self.state == "ok"


class Listener:
    """Answers the probes of other ranks at an address, until closed.

    Raises:
        OSError: nobody can listen there.
    """

    def __init__(self, address: str, token: str) -> None:
        self._token = token.encode()
        self._socket = socket.socket(family(address), socket.SOCK_STREAM)
        try:
            self._socket.bind((address, 0))
            self._socket.listen(64)
        except OSError:
            self._socket.close()
            raise
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._serve, name=f"doctor-{address}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_STALL_S * 2)
        with contextlib.suppress(OSError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _exactly(connection, len(self._token)) != self._token:
                return
            for _ in range(_PINGS):
                connection.sendall(_exactly(connection, len(_PING)))
            _exactly(connection, _FIRST)
            connection.sendall(b"1")
            while True:
                _exactly(connection, _BLOCK)
                connection.sendall(b"1")

    def close(self) -> None:
        """Takes no more probes."""
        self._socket.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        more = connection.recv(min(65536, size - len(parts)))
        if not more:
            raise ConnectionError("closed")
        parts += more
    return bytes(parts)


def reach(rank: int, peer: Facts, spot: Spot, until: float) -> Attempt:
    """Connects to an address and measures round trips, packets of full size, and the rate."""
    left = max(0.2, until - time.monotonic())
    result, connection = try_connect(spot.address, spot.port, min(CONNECT_S, left))
    where = (rank, peer.rank, spot.interface, spot.address, _source(spot.address))
    if connection is None:
        return Attempt(*where, result.value)
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(min(_STALL_S, left))
        try:
            rtt_ms = _ping(connection, peer.token.encode())
        except TimeoutError:
            return Attempt(*where, Reach.FILTERED.value)
        except OSError:
            return Attempt(*where, "stranger")
        try:
            mbit = _write(connection)
        except OSError:
            # Small packets get through and large ones do not.
            return Attempt(*where, "mtu hole", rtt_ms, None, _largest(peer, spot, until))
    return Attempt(*where, "ok", rtt_ms, mbit)


def _ping(connection: socket.socket, token: bytes) -> float:
    connection.sendall(token)
    times = []
    for _ in range(_PINGS):
        begin = time.perf_counter()
        connection.sendall(_PING)
        if _exactly(connection, len(_PING)) != _PING:
            raise ConnectionError("not a doctor")
        times.append(time.perf_counter() - begin)
    return round(statistics.median(times) * 1e3, 3)


def _write(connection: socket.socket) -> float:
    """The rate of the median block: on a busy machine a single one waits for a core many times as long."""
    connection.sendall(bytes(_FIRST))
    _exactly(connection, 1)
    block = bytes(_BLOCK)
    times: list[float] = []
    end = time.perf_counter() + _RATE_S
    while len(times) < _MOST_BLOCKS and (begin := time.perf_counter()) < end:
        connection.settimeout(_STALL_S * 4)
        connection.sendall(block)
        _exactly(connection, 1)
        times.append(time.perf_counter() - begin)
    return round(_BLOCK * 8 / statistics.median(times) / 1e6, 1)


def _largest(peer: Facts, spot: Spot, until: float) -> int:
    """The largest packet that gets through, of a few sizes; 0 if none does or the system cannot choose sizes."""
    option = getattr(socket, "TCP_MAXSEG", None)
    kind = family(spot.address)
    for segment in _SEGMENTS:
        mtu = segment + _HEADERS[kind]
        if option is None or mtu < _LEAST_MTU[kind] or time.monotonic() > until - _STALL_S:
            break
        with socket.socket(kind, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.settimeout(1.5)
            probe.setsockopt(socket.IPPROTO_TCP, option, segment)
            probe.connect((spot.address, spot.port))
            _ping(probe, peer.token.encode())
            probe.sendall(bytes(_FIRST))
            _exactly(probe, 1)
            return mtu
    return 0


def _source(address: str) -> str:
    """Our own address on the way to another; sends nothing."""
    with socket.socket(family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return ""
