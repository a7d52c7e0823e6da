"""Lines of JSON over a socket, each wait within a deadline."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from pyddpdiag.errors import DoctorError

# A roster of some thousand ranks; beyond this, something else is talking.
_MOST = 16 * 1024 * 1024

Message = dict[str, Any]


class Line:
    """A connection between two processes of the doctor. Not for several threads at once.

    Args:
        connection: taken over, and closed by `close`.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def send(self, message: Message, until: float) -> None:
        """Sends one message.

        Raises:
            DoctorError: the other side is gone, or did not take it until then (monotonic s).
        """
        self._connection.settimeout(max(0.05, until - time.monotonic()))
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise DoctorError(f"the connection broke: {error.strerror or error}.") from error

    def receive(self, until: float) -> Message:
        """The next message.

        Raises:
            DoctorError: none came until then, the other side is gone, or it is no doctor.
        """
        while b"\n" not in self._rest:
            self._connection.settimeout(max(0.05, until - time.monotonic()))
            try:
                more = self._connection.recv(65536)
            except TimeoutError as error:
                raise DoctorError("no answer came in time.") from error
            except OSError as error:
                raise DoctorError(f"the connection broke: {error.strerror or error}.") from error
            if not more:
                raise DoctorError("the other side closed the connection.")
            self._rest += more
            if len(self._rest) > _MOST:
                raise DoctorError("the other side is no doctor.")
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DoctorError("the other side is no doctor.") from error
        if not isinstance(message, dict):
            raise DoctorError("the other side is no doctor.")
        return message

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
