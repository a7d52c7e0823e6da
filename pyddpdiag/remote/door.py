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
        self._unknown: list[socket.socket] = []  # in the order in which they came
        self._known: list[socket.socket] = []

    def let_in(self, connection: socket.socket) -> None:
        """One that nobody knows yet; the oldest of these one goes if there are too many."""
        with self._lock:
            self._unknown.append(connection)
            if len(self._unknown) > MOST_UNKNOWN:
                _hang_up(self._unknown.pop(0))

    def is_known(self, connection: socket.socket) -> None:
        """It has shown that it belongs to the run."""
        with self._lock:
            if connection in self._unknown:
                self._unknown.remove(connection)
                self._known.append(connection)

    def left(self, connection: socket.socket) -> None:
        """It goes; its thread closes it after this."""
        with self._lock:
            for those in (self._unknown, self._known):
                if connection in those:
                    those.remove(connection)

    def close(self) -> None:
        """Everybody goes: whoever waits for one of these connections is told that it ended."""
        with self._lock:
            for connection in (*self._unknown, *self._known):
                _hang_up(connection)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


__all__ = ["KNOWN_S", "MOST_UNKNOWN", "Door"]
