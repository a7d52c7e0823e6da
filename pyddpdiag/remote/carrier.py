"""Brings a run's files from a folder of this machine to a place: in pieces meanwhile, and whole in the end."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyddpdiag.errors import PyddpdiagError, RemoteError, TraceExistsError
from pyddpdiag.model.command import NAME
from pyddpdiag.model.run_files import HEADER_BYTES, is_trace, rank_of
from pyddpdiag.output import say
from pyddpdiag.remote.local import (
    INDEX,
    LIVE,
    Index,
    checksum,
    files_of,
    links_of,
    open_own,
    read_pieces,
    run_id,
    runs_of,
)
from pyddpdiag.remote.place import Place

TRIES: Final = 3
PAUSE_S: Final = 1.0
"""Before the next try."""


@dataclass(frozen=True)
class Brought:
    """What came of bringing a folder.

    Attributes:
        files: what has arrived, by names relative to the run's folder.
        trouble: what hindered the rest; empty: nothing did.
        links: what leads elsewhere, and so was left.
    """

    files: tuple[str, ...]
    trouble: str = ""
    links: tuple[str, ...] = ()


class Carrier:
    """Brings one folder to one place.

    `rank`: bring only this rank's files; None: all. `every_s`: how often pieces are brought; only passed on to
    readers.
    """

    def __init__(self, folder: Path, place: Place, rank: int | None = None, every_s: float = 0.0) -> None:
        self._folder = folder
        self._place = place
        self._rank = rank
        self._every_s = every_s
        self._sent: dict[str, dict[int, int]] = {}  # checksums of a trace's pieces
        self._seen: dict[str, tuple[int, int]] = {}  # size and time of other files
        self._round = 0
        self._ours: set[tuple[str, bytes]] = set()  # attempts whose place was looked at

    def sync(self) -> None:
        """Brings what has changed since the last time.

        Raises:
            RemoteError: it cannot be brought, or the place holds another run.
        """
        names = files_of(self._folder, self._rank)
        self._require_own(names)
        self._round += 1
        for name in names:
            path = self._folder / name
            try:
                if is_trace(path.name):
                    self._send_pieces(name)
                    continue
                status = path.lstat()
                mark = status.st_size, status.st_mtime_ns
                if self._seen.get(name) != mark:
                    with open_own(path) as file:
                        self._place.write(name, file.read(0, file.size))
                    self._seen[name] = mark
            except FileNotFoundError:
                continue  # a rank replaced it just now; next time

    def finish(self) -> Brought:
        """Brings all of it, each file whole; does not raise for what hinders it."""
        done: list[str] = []
        links = tuple(links_of(self._folder))
        try:
            names = files_of(self._folder, self._rank)
            self._require_own(names)
            listed = self._place.sizes()
            # Traces last: whoever sees one finds what belongs to it.
            for name in sorted(names, key=lambda name: (is_trace(name.rpartition("/")[2]), name)):
                if name == NAME and NAME in listed:
                    done.append(name)  # how the command ended: what came first counts
                    continue
                self._put(name)
                done.append(name)
            self._tidy(done)
        except PyddpdiagError as error:
            return Brought(tuple(done), _in_a_line(error), links)
        except OSError as error:
            return Brought(tuple(done), f"{error.filename}: {error.strerror or error}", links)
        return Brought(tuple(done), links=links)

    def _put(self, name: str) -> None:
        for left in reversed(range(TRIES)):
            try:
                self._place.put(self._folder / name, name)
                return
            except RemoteError:
                if not left:
                    raise
                time.sleep(PAUSE_S)

    def _tidy(self, done: list[str]) -> None:
        """Pieces of traces that are there whole; left ones do no harm."""
        for name in done:
            attempt, _, last = name.rpartition("/")
            if is_trace(last):
                with suppress(PyddpdiagError):
                    if last + LIVE in self._place.folders(attempt):
                        self._place.remove(name + LIVE)

    def _send_pieces(self, name: str) -> None:
        path, sent = self._folder / name, self._sent.setdefault(name, {})
        pieces = read_pieces(path)
        if not run_id(pieces[0][:HEADER_BYTES]):
            return
        for number in sorted(pieces, reverse=True):  # the header last
            found = checksum(pieces[number])
            if sent.get(number) != found:
                self._place.write(f"{name}{LIVE}/{number}", pieces[number])
                sent[number] = found
        index = Index(path.stat().st_size, sent, self._round, self._every_s)
        self._place.write(f"{name}{LIVE}/{INDEX}", index.text())

    def _require_own(self, names: list[str]) -> None:
        for attempt, ours in runs_of(self._folder, names).items():
            if (attempt, ours) in self._ours:
                continue
            theirs = run_at(self._place, attempt)
            if theirs and theirs != ours:
                raise RemoteError(
                    f"{self._place.shown} holds traces of another run ({theirs.hex()[:8]}; this is {ours.hex()[:8]}).",
                    hint="give each run a place of its own.",
                )
            self._ours.add((attempt, ours))


def run_at(place: Place, attempt: str = "") -> bytes:
    """The identity of the run whose traces are there; empty: none are."""
    before = f"{attempt}/" if attempt else ""
    names = [f"{before}{name}" for name, size in place.sizes(attempt).items() if is_trace(name) and size]
    names += [
        f"{before}{name}/0"
        for name in place.folders(attempt)
        if name.endswith(LIVE) and is_trace(name.removesuffix(LIVE))
    ]
    for name in names:
        with suppress(RemoteError):
            identity = run_id(place.read(name, 0, HEADER_BYTES))
            if identity:
                return identity
    return b""


def require_free(place: Place) -> None:
    """Looks before a run begins whether its place is free.

    Raises:
        TraceExistsError: it holds traces already.
    """
    if run_at(place):
        raise TraceExistsError(
            f"there are traces already in {place.shown}.",
            hint="give each run a place of its own: --trace URL.",
        )


class Syncing:
    """A thread that brings pieces while the run goes on. What hinders it is said once, and tried again.

    `every_s`: from the end of one round to the begin of the next.
    """

    def __init__(self, carrier: Carrier, every_s: float) -> None:
        self._carrier = carrier
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyddpdiag-sync", daemon=True)
        self._thread.start()

    def close(self, limit_s: float) -> bool:
        """No round begins any more; whether the last one ended within the limit."""
        self._ended.set()
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            # Signals are the main thread's, which waits for them.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        said = ""
        while not self._ended.wait(self._every_s):
            try:
                self._carrier.sync()
                said = ""
            except (PyddpdiagError, OSError) as error:
                message = _in_a_line(error) if isinstance(error, PyddpdiagError) else str(error)
                if message != said:
                    said = message
                    with suppress(OSError):
                        say(f"pyddpdiag run: not brought yet: {message} It is tried again.", sys.stderr)


def _in_a_line(error: PyddpdiagError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def remove_brought(folder: Path, brought: Brought) -> None:
    """Removes from this machine what has arrived, and the folder if nothing else is in it."""
    for name in brought.files:
        with suppress(OSError):
            (folder / name).unlink()
    for place in (*(path for path in folder.glob("attempt-*") if path.is_dir()), folder):
        with suppress(OSError):
            place.rmdir()


LIMIT_S: Final = 60.0
"""From when this machine brought its own: commands of one run end at about the same time on all machines."""

_LOOK_S: Final = 1.0


def wait_for_ranks(place: Place, world_size: int, attempt: str = "", limit_s: float = LIMIT_S) -> list[int]:
    """The ranks whose whole traces are not there when the time is over; none: all are.

    `attempt`: the folder of the attempt; "" is the first. `limit_s`: after which nobody waits any more; seconds.

    Raises:
        RemoteError: the place cannot be read.
    """
    end = time.monotonic() + limit_s
    while True:
        there = {rank_of(name) for name in place.sizes(attempt) if is_trace(name)}
        missing = [rank for rank in range(world_size) if rank not in there]
        if not missing or time.monotonic() >= end:
            return missing
        time.sleep(min(_LOOK_S, max(0.0, end - time.monotonic())))
