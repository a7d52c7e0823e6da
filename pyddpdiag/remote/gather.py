"""Sends each machine's files of a run to the machine of rank 0, over a connection of its own.

Whoever connects must know the run's secret (`secret.py`): 16 random bytes on which the ranks agreed through their
process group's store. It is proved both ways (HMAC-SHA-256 over fresh random bytes) and never sent. The files are not
encrypted, as Gloo's gradients are not; a digest under the same secret shows a change on the way. Nothing that arrives
is executed, and only files with the names of a run are written.
"""

from __future__ import annotations

import filecmp
import hashlib
import hmac
import shutil
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final

from pyddpdiag.errors import PyddpdiagError, RemoteError
from pyddpdiag.model.command import NAME
from pyddpdiag.model.node import NOTE_BYTES, node_of, parse_note
from pyddpdiag.model.run_files import is_safe
from pyddpdiag.output import clean
from pyddpdiag.remote.channel import DIGEST, KNOWN_S, SILENCE_S, Channel, Door
from pyddpdiag.remote.local import MOST_BYTES, files_of, open_own
from pyddpdiag.system.replaced_files import replace

LIMIT_S: Final = 120.0
"""From a machine's end to the end of the gathering."""
_CLOSE_S: Final = 5.0
"""For threads whose connections have ended."""
_COMPLAINTS: Final = 32
_OF_UNKNOWN: Final = 16
_HELLO: Final = b"pyddpdiag gather 1\n"
_RETRY_S: Final = 0.5
_PROOF: Final = struct.Struct(f"!32sI{DIGEST}s")


class OtherSecretError(RemoteError):
    """The other side does not know this secret."""


@dataclass
class Gathered:
    """What came: files by machine, and why others did not."""

    nodes: dict[int, list[str]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)


class Gatherer:
    """The machine of rank 0: listens until all others have sent their files, or the time is over.

    `nodes`: the number of machines, this one included. `secrets`: of the run, one for each attempt; each of the
    others knows one of them.

    Raises:
        RemoteError: the port is taken, or there is no secret, since nothing was recorded here.
    """

    def __init__(self, folder: Path, nodes: int, port: int, secrets: Sequence[bytes]) -> None:
        self._folder = folder
        self._nodes = nodes
        self._secrets = tuple(secrets)
        if not self._secrets:
            raise RemoteError("nothing was recorded here, so the others cannot show that they belong to it.")
        self._found = Gathered()
        self._lock = threading.Lock()
        self._keeping = threading.Lock()
        self._door = Door()
        self._over = False
        try:
            family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
            self._server = socket.create_server(
                ("", port), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=self._nodes
            )
        except OSError as error:
            raise RemoteError(
                f"cannot listen at port {port}: {error.strerror or error}.",
                hint="give a free one on all machines: --gather-port.",
            ) from None

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.getsockname()[1]
        return port

    def gather(self, limit_s: float = LIMIT_S) -> Gathered:
        """Waits for the others; names those that did not come."""
        until = time.monotonic() + limit_s
        threads: list[threading.Thread] = []
        with self._server:
            while (left := until - time.monotonic()) > 0 and len(self._found.nodes) < self._nodes - 1:
                self._server.settimeout(min(left, 0.2))
                try:
                    connection, address = self._server.accept()
                except OSError:  # nobody yet
                    continue
                self._door.let_in(connection)
                thread = threading.Thread(
                    target=self._serve, args=(connection, address[0], until), daemon=True
                )
                thread.start()
                threads = [each for each in threads if each.is_alive()] + [thread]
        # What has not come whole by now is not waited for.
        with self._keeping:
            self._over = True
        self._door.close()
        closed = time.monotonic() + _CLOSE_S
        for thread in threads:
            thread.join(max(0.0, closed - time.monotonic()))
        with self._lock:
            absent = [node for node in range(1, self._nodes) if node not in self._found.nodes]
            trouble = list(self._found.trouble)
            trouble += [f"node {node}: nothing came within {limit_s:.0f} s." for node in absent]
            return Gathered(dict(self._found.nodes), trouble)

    def _serve(self, connection: socket.socket, address: str, until: float) -> None:
        known_until = min(until, time.monotonic() + KNOWN_S)
        try:
            with connection:
                try:
                    channel = Channel(connection, known_until)
                    node = self._meet(channel)
                    self._door.is_known(connection)
                    channel.until = until
                    self._take(channel, node)
                finally:
                    self._door.left(connection)
        except (PyddpdiagError, OSError) as error:
            late = time.monotonic() >= known_until
            reason = "it did not show in time that it belongs to this run." if late else _reason(error)
            self._complain(f"a connection from {clean(address, 60)}: {reason}", _OF_UNKNOWN)

    def _take(self, channel: Channel, node: int) -> None:
        """All that a machine sends, and the answer to it."""
        try:
            names = self._receive(channel, node)
        except (PyddpdiagError, OSError) as error:
            reason = _reason(error)
            self._complain(f"node {node}: {reason}")
            with suppress(OSError, RemoteError):
                channel.send_list({"error": reason})
            return
        with suppress(OSError, RemoteError):
            channel.send_list({"error": ""})
        # Not before the answer: when all are in, connections end.
        with self._lock:
            self._found.nodes[node] = names

    def _complain(self, text: str, most: int = _COMPLAINTS) -> None:
        with self._lock:
            if len(self._found.trouble) < most and not self._over:
                self._found.trouble.append(text)

    def _meet(self, channel: Channel) -> int:
        mine = token_bytes(32)
        channel.send(_HELLO + mine)
        theirs, node, proof = _PROOF.unpack(channel.receive(_PROOF.size))
        proofs = {key: _proof(key, b"node", mine, theirs, node) for key in self._secrets}
        key = next((key for key in proofs if hmac.compare_digest(proof, proofs[key])), None)
        if key is None:
            raise RemoteError("refused: it does not know this run's secret.")
        if not 0 < node < self._nodes:
            raise RemoteError(f"refused: there is no node {node} among {self._nodes}.")
        channel.send(_proof(key, b"first", mine, theirs, node))
        channel.digest = hmac.new(key, mine + theirs, hashlib.sha256)
        return int(node)

    def _receive(self, channel: Channel, node: int) -> list[str]:
        sizes = self._list(channel.receive_list())
        needed, free = sum(sizes.values()), shutil.disk_usage(self._folder).free
        if needed > free:
            raise RemoteError(f"{needed} bytes would come, and the disk of '{self._folder}' has {free} left.")
        parts = {name: self._folder / f"{name}.{node}.part" for name in sizes}
        try:
            for name, size in sizes.items():
                parts[name].parent.mkdir(exist_ok=True)
                with parts[name].open("wb") as file:
                    channel.receive_into(file.write, size)
            channel.receive_digest()
            # All has come and nothing was changed: only now is any of it seen.
            with self._keeping:
                self._keep(parts)
        finally:
            for part in parts.values():
                with suppress(OSError):
                    part.unlink()
        return list(sizes)

    def _keep(self, parts: Mapping[str, Path]) -> None:
        """Gives what has come its names. Of what another task of the same machine sent, the later one counts."""
        if self._over:
            raise RemoteError("it came too late.")
        notes = [name for name in parts if node_of(name) is not None and (self._folder / name).exists()]
        later = sum(_noted_at(parts[name], name) for name in notes) > sum(
            _noted_at(self._folder / name, name) for name in notes
        )
        for name, part in parts.items():
            # The same one: of machines, or tasks of one machine, that share the folder.
            if not notes and self._differs(name, part):
                raise RemoteError(f"{name}: there is one already; two machines have a rank of this number.")
        for name, part in parts.items():
            target = self._folder / name
            if not target.exists() or (later and self._differs(name, part)):
                replace(part, target)

    def _differs(self, name: str, part: Path) -> bool:
        target = self._folder / name
        # How the command ended: that of the first machine counts.
        return target.exists() and target.name != NAME and not filecmp.cmp(part, target, shallow=False)

    def _list(self, raw: Mapping[str, Any]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, size in raw.items():
            if not is_safe(name):
                raise RemoteError(f"'{clean(name, 60)}' is no file of a run.")
            if type(size) is not int or not 0 <= size <= MOST_BYTES:
                raise RemoteError(f"{name}: a size that cannot be.")
            found[name] = size
        return found


def send(
    folder: Path, node: int, host: str, port: int, secrets: Sequence[bytes], *, limit_s: float = LIMIT_S
) -> int:
    """Sends this machine's files to the first one, and returns how many. They stay here.

    Args:
        node: this machine's number, from 1.
        secrets: of the run, one for each attempt; the first machine knows one of them.
        limit_s: for all of it.

    Raises:
        RemoteError: the first machine does not answer, is of another run, or could not keep the files.
    """
    until = time.monotonic() + limit_s
    failure = RemoteError("nothing was recorded on this machine.")
    for key in secrets:
        try:
            return _send(folder, node, (host, port), key, until, limit_s)
        except OtherSecretError as error:
            failure = error
    raise failure


def _send(folder: Path, node: int, first: tuple[str, int], key: bytes, until: float, limit_s: float) -> int:
    host, port = first
    where = f"node 0 ({host}:{port})"
    with _connected(host, port, until, limit_s) as connection:
        channel = Channel(connection, until)
        try:
            _introduce(channel, key, node)
            names = files_of(folder)
            sizes = {name: (folder / name).lstat().st_size for name in names}
            channel.send_list(sizes)
            try:
                for name, size in sizes.items():
                    with open_own(folder / name) as file:
                        channel.send_from(file.read_on, size, name)
                channel.send_digest()
            except OSError:
                # It may have said why before it closed.
                answer = channel.receive_list()
                raise RemoteError(f"{where}: {clean(str(answer.get('error')), 200)}") from None
            answer = channel.receive_list()
        except OSError as error:
            if isinstance(error, PyddpdiagError):
                raise
            raise RemoteError(f"{where}: the connection broke: {_reason(error)}") from None
    if answer.get("error"):
        raise RemoteError(f"{where}: {clean(str(answer['error']), 200)}")
    return len(sizes)


def _introduce(channel: Channel, key: bytes, node: int) -> None:
    hello = channel.receive(len(_HELLO) + 32)
    if not hello.startswith(_HELLO):
        raise RemoteError(
            "another program answers at this port.", hint="give another --gather-port on all machines."
        )
    theirs, mine = hello[len(_HELLO) :], token_bytes(32)
    channel.send(_PROOF.pack(mine, node, _proof(key, b"node", theirs, mine, node)))
    try:
        answer = channel.receive(DIGEST)
    except RemoteError:
        answer = b""
    if not hmac.compare_digest(answer, _proof(key, b"first", theirs, mine, node)):
        raise OtherSecretError(
            "node 0 does not know this run's secret, or refuses this node: is it another run?"
        )
    channel.digest = hmac.new(key, theirs + mine, hashlib.sha256)


def _proof(key: bytes, who: bytes, first: bytes, second: bytes, node: int) -> bytes:
    return hmac.digest(key, who + first + second + struct.pack("!I", node), "sha256")


def _connected(host: str, port: int, until: float, limit_s: float) -> socket.socket:
    """A connection; the first machine may not listen yet."""
    while True:
        try:
            return socket.create_connection(
                (host, port), timeout=min(SILENCE_S, max(0.1, until - time.monotonic()))
            )
        except OSError as error:
            if time.monotonic() + _RETRY_S > until:
                raise RemoteError(
                    f"node 0 did not answer at {host}:{port} within {limit_s:.0f} s: {_reason(error)}",
                    hint="is its pyddpdiag run over, or a firewall between?",
                ) from None
            time.sleep(_RETRY_S)


def _noted_at(path: Path, name: str) -> int:
    """When a machine's note was written, on a clock of its own; 0: it does not say so."""
    with path.open("rb") as file:
        note = parse_note(node_of(name) or "", file.read(NOTE_BYTES))
    return 0 if note is None else note.at_ns


def _reason(error: Exception) -> str:
    return (
        error.message if isinstance(error, PyddpdiagError) else f"{getattr(error, 'strerror', '') or error}"
    )
