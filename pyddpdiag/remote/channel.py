"""Lists and files over a connection, with limits on silence, sizes and time, and a digest of all of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from pyddpdiag.errors import RemoteError

SILENCE_S: Final = 30.0
"""The longest silence on a connection."""
DIGEST: Final = hashlib.sha256().digest_size
_CHUNK: Final = 2**18
_MOST_LIST: Final = 2**24


class Channel:
    """Bytes over a connection, with limits on silence and on the whole."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self.until = until
        self.digest = hmac.new(b"-", b"", hashlib.sha256)

    def _arm(self) -> None:
        left = self.until - time.monotonic()
        if left <= 0:
            raise RemoteError("the time is over.")
        self._connection.settimeout(min(SILENCE_S, left))

    def send(self, content: bytes) -> None:
        """Sends it.

        Raises:
            RemoteError: the time is over.
        """
        self._arm()
        self._connection.sendall(content)

    def receive(self, size: int) -> bytes:
        """So many bytes.

        Raises:
            RemoteError: the connection ended, or the time is over.
        """
        found = bytearray()
        self.take(found.extend, size)
        return bytes(found)

    def take(self, write: Callable[[bytes], Any], size: int) -> None:
        """Gives so many bytes to `write`, as they come.

        Raises:
            RemoteError: the connection ended, or the time is over.
        """
        left = size
        while left:
            self._arm()
            chunk = self._connection.recv(min(left, _CHUNK))
            if not chunk:
                raise RemoteError(f"the connection ended, {left} of {size} bytes before its end.")
            write(chunk)
            left -= len(chunk)

    def send_list(self, content: Mapping[str, Any]) -> None:
        """Sends names and values."""
        text = json.dumps(content).encode()
        self.digest.update(text)
        self.send(struct.pack("!I", len(text)) + text)

    def receive_list(self) -> dict[str, Any]:
        """Names and values.

        Raises:
            RemoteError: it is no such list.
        """
        (size,) = struct.unpack("!I", self.receive(4))
        if size > _MOST_LIST:
            raise RemoteError("a list of files that cannot be.")
        text = self.receive(size)
        self.digest.update(text)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RemoteError("no list of files.")
        return found

    def send_from(self, read: Callable[[int], bytes], size: int, name: str) -> None:
        """Sends so many bytes that `read` gives, of the file that is called `name`.

        Raises:
            RemoteError: there are fewer.
        """
        left = size
        while left:
            chunk = read(min(left, _CHUNK))
            if not chunk:
                raise RemoteError(f"{name} became shorter while it was sent.")
            self.digest.update(chunk)
            self.send(chunk)
            left -= len(chunk)

    def receive_into(self, write: Callable[[bytes], Any], size: int) -> None:
        """Gives so many bytes of a file to `write`."""

        def keep(chunk: bytes) -> None:
            self.digest.update(chunk)
            write(chunk)

        self.take(keep, size)

    def send_digest(self) -> None:
        """Sends the digest of all lists and files."""
        self.send(self.digest.digest())

    def receive_digest(self) -> None:
        """Compares the digest of all lists and files with that of the other end.

        Raises:
            RemoteError: they differ.
        """
        expected = self.digest.digest()
        if not hmac.compare_digest(self.receive(DIGEST), expected):
            raise RemoteError("the files were changed on the way.")


KNOWN_S: Final = 10.0
"""In which a connection must show that it belongs to the run."""
MOST_UNKNOWN: Final = 64
"""At a time. Of more the oldest goes: whoever belongs here needs a round trip to show it."""


class Door:
    """Who is in. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[socket.socket, bool] = {}  # of each that is in, in the order in which they came

    def let_in(self, connection: socket.socket) -> None:
        """One that nobody knows yet; the oldest of these one goes if there are too many."""
        with self._lock:
            self._known[connection] = False
            unknown = [each for each, known in self._known.items() if not known]
            if len(unknown) > MOST_UNKNOWN:
                del self._known[unknown[0]]
                _hang_up(unknown[0])

    def is_known(self, connection: socket.socket) -> None:
        """It has shown that it belongs to the run."""
        with self._lock:
            if connection in self._known:
                self._known[connection] = True

    def left(self, connection: socket.socket) -> None:
        """It goes; its thread closes it after this."""
        with self._lock:
            self._known.pop(connection, None)

    def close(self) -> None:
        """Everybody goes: whoever waits for one of these connections is told that it ended."""
        with self._lock:
            for connection in self._known:
                _hang_up(connection)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
