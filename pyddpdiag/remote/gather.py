"""Sends each machine's files of a run to the machine of rank 0, over a connection of its own.

Whoever connects must know the run's identity: 16 random bytes on which the ranks agreed through their process group's
store. It is proved both ways (HMAC-SHA-256 over fresh random bytes) and never sent. The files themselves are not
encrypted, as Gloo's gradients are not; a digest under the same secret shows a change on the way. Nothing that arrives
is executed, and only files with the names of a run are written.
"""

from __future__ import annotations

import filecmp
import hashlib
import hmac
import json
import secrets
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyddpdiag.errors import PyddpdiagError, RemoteError
from pyddpdiag.model.command import NAME
from pyddpdiag.model.node import NOTE_BYTES, node_of, parse_note
from pyddpdiag.model.run_files import is_safe
from pyddpdiag.output import clean
from pyddpdiag.remote.local import files_of, runs_of
from pyddpdiag.remote.pieces import MOST_BYTES
from pyddpdiag.replaced_files import replace

LIMIT_S: Final = 120.0
"""From a machine's end to the end of the gathering."""
SILENCE_S: Final = 30.0
"""The longest silence on a connection."""
_HELLO: Final = b"pyddpdiag gather 1\n"
_CHUNK: Final = 2**18
_MOST_LIST: Final = 2**24
_RETRY_S: Final = 0.5
_DIGEST: Final = hashlib.sha256().digest_size
_PROOF: Final = struct.Struct(f"!32sI{_DIGEST}s")


def secret_of(folder: Path) -> bytes:
    """What all machines of a run know and nobody else; empty: nothing was recorded here."""
    runs = runs_of(folder, files_of(folder))
    return runs[min(runs)] if runs else b""


@dataclass
class Gathered:
    """What came: files by machine, and why others did not."""

    nodes: dict[int, list[str]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)


class Gatherer:
    """The machine of rank 0: listens until all others have sent their files, or the time is over.

    Args:
        folder: where files are written.
        nodes: the number of machines, this one included.
        port: to listen at.

    Raises:
        RemoteError: the port is taken, or nothing was recorded here.
    """

    def __init__(self, folder: Path, nodes: int, port: int) -> None:
        self._folder = folder
        self._nodes = nodes
        self._secret = secret_of(folder)
        if not self._secret:
            raise RemoteError("no trace of this machine, so the others cannot show that they belong to it.")
        self._found = Gathered()
        self._lock = threading.Lock()
        self._keeping = threading.Lock()
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
                thread = threading.Thread(
                    target=self._serve, args=(connection, address[0], until), daemon=True
                )
                thread.start()
                threads.append(thread)
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
        with self._lock:
            absent = [node for node in range(1, self._nodes) if node not in self._found.nodes]
            trouble = list(self._found.trouble)
            trouble += [f"node {node}: nothing came within {limit_s:.0f} s." for node in absent]
            return Gathered(dict(self._found.nodes), trouble)

    def _serve(self, connection: socket.socket, address: str, until: float) -> None:
        try:
            with connection:
                channel = _Channel(connection, until)
                node = self._meet(channel)
                try:
                    names = self._receive(channel, node)
                except (PyddpdiagError, OSError) as error:
                    reason = (
                        error.message if isinstance(error, PyddpdiagError) else error.strerror or str(error)
                    )
                    self._complain(f"node {node}: {reason}")
                    with suppress(OSError):
                        channel.send_list({"error": reason})
                    return
                with self._lock:
                    self._found.nodes[node] = names
                channel.send_list({"error": ""})
        except (PyddpdiagError, OSError) as error:
            self._complain(f"a connection from {clean(address, 60)}: {_reason(error)}")

    def _complain(self, text: str) -> None:
        with self._lock:
            if len(self._found.trouble) < 32:
                self._found.trouble.append(text)

    def _meet(self, channel: _Channel) -> int:
        mine = secrets.token_bytes(32)
        channel.send(_HELLO + mine)
        theirs, node, proof = _PROOF.unpack(channel.receive(_PROOF.size))
        if not hmac.compare_digest(proof, _proof(self._secret, b"node", mine, theirs, node)):
            raise RemoteError("refused: it does not know this run's secret.")
        if not 0 < node < self._nodes:
            raise RemoteError(f"refused: there is no node {node} among {self._nodes}.")
        channel.send(_proof(self._secret, b"first", mine, theirs, node))
        channel.digest = hmac.new(self._secret, mine + theirs, hashlib.sha256)
        return int(node)

    def _receive(self, channel: _Channel, node: int) -> list[str]:
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
    folder: Path, node: int, host: str, port: int, *, limit_s: float = LIMIT_S, secret: bytes | None = None
) -> int:
    """Sends this machine's files to the first one, and returns how many. They stay here.

    Args:
        folder: of the run on this machine.
        node: this machine's number, from 1.
        host: of the first machine.
        port: where it listens.
        limit_s: for all of it.
        secret: of the run; None: as its traces have it.

    Raises:
        RemoteError: the first machine does not answer, is of another run, or could not keep the files.
    """
    key = secret_of(folder) if secret is None else secret
    if not key:
        raise RemoteError("nothing was recorded on this machine.")
    until = time.monotonic() + limit_s
    where = f"node 0 ({host}:{port})"
    with _connected(host, port, until, limit_s) as connection:
        channel = _Channel(connection, until)
        try:
            _introduce(channel, key, node)
            names = files_of(folder)
            sizes = {name: (folder / name).stat().st_size for name in names}
            channel.send_list(sizes)
            try:
                for name, size in sizes.items():
                    with (folder / name).open("rb") as file:
                        channel.send_from(file.read, size, name)
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


def _introduce(channel: _Channel, key: bytes, node: int) -> None:
    hello = channel.receive(len(_HELLO) + 32)
    if not hello.startswith(_HELLO):
        raise RemoteError(
            "another program answers at this port.", hint="give another --gather-port on all machines."
        )
    theirs, mine = hello[len(_HELLO) :], secrets.token_bytes(32)
    channel.send(_PROOF.pack(mine, node, _proof(key, b"node", theirs, mine, node)))
    try:
        answer = channel.receive(_DIGEST)
    except RemoteError:
        answer = b""
    if not hmac.compare_digest(answer, _proof(key, b"first", theirs, mine, node)):
        raise RemoteError("node 0 does not know this run's secret, or refuses this node: is it another run?")
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


class _Channel:
    """Bytes over a connection, with limits on silence and on the whole."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until
        self.digest = hmac.new(b"-", b"", hashlib.sha256)

    def _arm(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise RemoteError("the time is over.")
        self._connection.settimeout(min(SILENCE_S, left))

    def send(self, content: bytes) -> None:
        self._arm()
        self._connection.sendall(content)

    def receive(self, size: int) -> bytes:
        found = bytearray()
        self.take(found.extend, size)
        return bytes(found)

    def take(self, write: Callable[[bytes], Any], size: int) -> None:
        left = size
        while left:
            self._arm()
            chunk = self._connection.recv(min(left, _CHUNK))
            if not chunk:
                raise RemoteError(f"the connection ended, {left} of {size} bytes before its end.")
            write(chunk)
            left -= len(chunk)

    def send_list(self, content: Mapping[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.digest.update(text)
        self.send(struct.pack("!I", len(text)) + text)

    def receive_list(self) -> dict[str, Any]:
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
        left = size
        while left:
            chunk = read(min(left, _CHUNK))
            if not chunk:
                raise RemoteError(f"{name} became shorter while it was sent.")
            self.digest.update(chunk)
            self.send(chunk)
            left -= len(chunk)

    def receive_into(self, write: Callable[[bytes], Any], size: int) -> None:
        def keep(chunk: bytes) -> None:
            self.digest.update(chunk)
            write(chunk)

        self.take(keep, size)

    def send_digest(self) -> None:
        self.send(self.digest.digest())

    def receive_digest(self) -> None:
        expected = self.digest.digest()
        if not hmac.compare_digest(self.receive(_DIGEST), expected):
            raise RemoteError("the files were changed on the way.")


__all__ = ["LIMIT_S", "Gathered", "Gatherer", "secret_of", "send"]
