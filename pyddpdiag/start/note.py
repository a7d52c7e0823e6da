"""Where a rank is before it has a trace: a small file beside the traces, which its process renews until it has one.

Written in every rank below `pyddpdiag run` from the start of Python on, so only what costs next to nothing is imported.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from pyddpdiag.start import environment
from pyddpdiag.system.clock import clock_identity, monotonic_ns
from pyddpdiag.system.replaced_files import replace as replace_file

SUFFIX: Final = ".start"
TEXT_LIMIT: Final = 300
BETWEEN_NS: Final = 2 * 10**9
"""Between two writings. To write it takes less than a millisecond."""


@dataclass(frozen=True)
class StartNote:
    """One rank that records nothing yet.

    Attributes:
        rank, world_size: as the launcher or the script gave them.
        host, pid: its process.
        clock: identity of the clock of `since_ns` and `until_ns`.
        began_s, until_s: when its process was first and last looked at, in seconds since 1970.
        where: the line of the script at which it is; empty: not known.
        waits_in: the function of torch.distributed in which it is there, or DistributedDataParallel, which both meet
            the other ranks; empty: it is in none.
        since_ns, until_ns: since when it is there, and when it was last seen there.
        error: the exception that ended it, and where that came from; empty: none that is known.
    """

    rank: int
    world_size: int
    host: str
    pid: int
    clock: str
    began_s: float
    until_s: float
    where: str = ""
    waits_in: str = ""
    since_ns: int = 0
    until_ns: int = 0
    error: str = ""


def place_of(folder: Path, rank: int, environ: Mapping[str, str] | None = None) -> Path:
    """Where a rank's note lies: after a restart by torchrun below the run's folder, as its trace will."""
    get = environment.get if environ is None else environ.get
    restarts = get("TORCHELASTIC_RESTART_COUNT", "")
    below = restarts if restarts.isascii() and restarts.isdigit() and int(restarts) else ""
    return (folder / f"attempt-{below}" if below else folder) / f"rank_{rank}{SUFFIX}"


class StartNoteFile:
    """Writes it. Whatever the file system refuses, a report only knows less of the start.

    Args:
        path: of the file; its folder is made.
        rank, world_size: of this process.
    """

    def __init__(self, path: Path, rank: int, world_size: int) -> None:
        self._path = path
        now = time.time()
        self._note = StartNote(
            rank, world_size, socket.gethostname(), os.getpid(), clock_identity(), now, now
        )
        self._due_ns = 0
        self._mine: tuple[int, int] | None = None  # what the file was when this process last wrote it
        self._gone = False

    def note(self, where: str, waits_in: str, since_ns: int, until_ns: int, *, at_once: bool = False) -> None:
        """Where the rank is. Written now and then only, unless `at_once`."""
        self._note = replace(
            self._note,
            where=where[:TEXT_LIMIT],
            waits_in=waits_in[:TEXT_LIMIT],
            since_ns=since_ns,
            until_ns=until_ns,
            until_s=time.time(),
        )
        if at_once or monotonic_ns() >= self._due_ns:
            self._write()

    def fails(self, error: str) -> None:
        """An exception ends the process: what it was, and its line."""
        self._note = replace(self._note, error=error[:TEXT_LIMIT])
        self._write()

    @property
    def failed(self) -> bool:
        """Whether one has."""
        return bool(self._note.error)

    def remove(self) -> None:
        """The rank has a trace, or comes to its end without an error."""
        with suppress(OSError):
            if self._is_mine():
                self._path.unlink()
        self._gone = True

    def _write(self) -> None:
        self._due_ns = monotonic_ns() + BETWEEN_NS
        # A process of the same rank that this one started may have taken over.
        if self._gone or not (self._mine is None or self._is_mine()):
            self._gone = True
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
            beside.write_text(json.dumps(asdict(self._note)), encoding="utf-8")
            replace_file(beside, self._path)
            self._mine = self._seen()

    def _is_mine(self) -> bool:
        return self._mine is not None and self._seen() == self._mine

    def _seen(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
