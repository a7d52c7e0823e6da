"""The connections to a machine that listens: those that do not show in time who they are must go."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

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
