"""Lists and files over a connection, with limits on silence, sizes and time, and a digest of all of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
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
