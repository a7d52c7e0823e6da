"""Where the ranks of a mesh check find rank 0, and the lines of JSON that they exchange, each wait within a deadline.

Rank 0 is at the job's own address, in its file, or in the launcher's store.
"""

from __future__ import annotations

import importlib
import json
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyddpdiag.errors import DoctorError
from pyddpdiag.ranks import interfaces
from pyddpdiag.ranks.rendezvous import FileTarget, Target, TcpTarget
from pyddpdiag.ranks.tcp import Reach, resolve, try_connect
from pyddpdiag.system.replaced_files import replace

# A roster of some thousand ranks; beyond this, something else is talking.
_MOST = 16 * 1024 * 1024

Message = dict[str, Any]


class Line:
    """A connection between two processes of the doctor. Not for several threads at once.

    `connection`: taken over, and closed by `close`.
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


_KEY = "pyddpdiag/doctor"
_POLL_S = 0.1
_LOOK_S = 2.0


def port_for(target: Target) -> int:
    """The port that rank 0 listens on: the job's own, or any where the ranks learn it otherwise."""
    return target.port if isinstance(target, TcpTarget) and not target.agent else 0


def publish(target: Target, port: int, until: float) -> None:
    """Leaves rank 0's addresses where the others look, if they cannot know them.

    Raises:
        DoctorError: the launcher's store does not answer in time.
        OSError: the file cannot be written.
    """
    if isinstance(target, TcpTarget) and not target.agent:
        return
    spots = [address for one in interfaces.found() if one.up for address in one.routable]
    text = json.dumps({"addresses": spots, "port": port})
    if isinstance(target, FileTarget):
        path = _file(target)
        draft = path.with_name(path.name + ".new")
        draft.write_text(text, encoding="ascii")
        replace(draft, path)
    else:
        _in_agents_store(target, text, until)


def withdraw(target: Target) -> None:
    """Takes the file away again."""
    if isinstance(target, FileTarget):
        with suppress(OSError):
            _file(target).unlink(missing_ok=True)


def connect(target: Target, until: float) -> tuple[Line, str]:
    """A connection to rank 0, and the address that it was reached at.

    Raises:
        DoctorError: it was not reached until then (monotonic s), and why.
    """
    why = "it never answered"
    while time.monotonic() < until:
        try:
            spots, port = _where(target, until)
        except (DoctorError, OSError) as error:
            why = str(error)
            time.sleep(_POLL_S)
            continue
        for address in spots:
            left = max(0.2, min(_LOOK_S, until - time.monotonic()))
            # The faults that are looked for must not break the doctor's own lines.
            reach, connection = try_connect(address, port, left, small=True)
            if connection is not None:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return Line(connection), address
            why = _WORDS.get(reach, "it cannot be reached")
        time.sleep(_POLL_S)
    raise DoctorError(
        f"rank 0 was not reached at {target}: {why}.", hint="start 'pyddpdiag doctor --mesh' there as well."
    )


_WORDS = {
    Reach.REFUSED: "its machine refuses; rank 0 does not run there, or a firewall rejects",
    Reach.FILTERED: "no answer; a firewall drops the packets, or no machine has this address",
    Reach.UNROUTABLE: "no route leads there",
}


def _file(target: FileTarget) -> Path:
    return Path(f"{target.path}.doctor")


def _where(target: Target, until: float) -> tuple[list[str], int]:
    if isinstance(target, TcpTarget) and not target.agent:
        found = resolve(target.host, _LOOK_S)
        if not found:
            raise DoctorError(f"'{target.host}' does not resolve to an address")
        return [address for address in found if ":" not in address] or found, target.port
    if isinstance(target, FileTarget):
        text = _file(target).read_text(encoding="ascii", errors="replace")
    else:
        text = _in_agents_store(target, None, until)
    try:
        answer = json.loads(text)
        # Its own addresses are those of rank 0, wherever that is: the loopback's last.
        spots = sorted(map(str, answer["addresses"]), key=interfaces.is_loopback)
        return spots, int(answer["port"])
    except (ValueError, KeyError, TypeError) as error:
        raise DoctorError("what rank 0 left cannot be read") from error


def _in_agents_store(target: TcpTarget, text: str | None, until: float) -> str:
    """Sets the value in torchrun's store, or waits for it. In a thread: torch's own waits cannot be interrupted."""
    answers: list[str | BaseException] = []
    seconds = max(1.0, until - time.monotonic())

    def talk() -> None:
        try:
            dist = importlib.import_module("torch.distributed")
            timeout = timedelta(seconds=seconds)
            store = dist.TCPStore(target.host, target.port, None, False, timeout, wait_for_workers=False)
            if text is not None:
                store.set(_KEY, text)
            answers.append(text if text is not None else store.get(_KEY).decode())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=talk, name="doctor-store", daemon=True)
    thread.start()
    thread.join(seconds)
    if not answers or isinstance(answers[0], BaseException):
        raise DoctorError(
            f"torchrun's store at {target} does not answer: {answers[0] if answers else 'time is up'}"
        )
    return answers[0]


def connect_here(port: int) -> Line:
    """A connection of rank 0 to itself.

    Raises:
        DoctorError: the loopback interface does not work.
    """
    reach, connection = try_connect("127.0.0.1", port, _LOOK_S)
    if connection is None:
        raise DoctorError(
            f"this machine cannot connect to itself at 127.0.0.1 ({reach.value}).", hint="ip link set lo up"
        )
    return Line(connection)
