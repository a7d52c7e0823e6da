"""Reads the notes of ranks that have no trace yet (`start.note`). Optional and never trusted."""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyddpdiag.model.fields import MISFITS, from_json
from pyddpdiag.model.now import ProcessStatus
from pyddpdiag.model.start import Start
from pyddpdiag.model.untrusted import number
from pyddpdiag.start.note import SUFFIX, StartNote
from pyddpdiag.system import processes
from pyddpdiag.system.clock import clock_identity
from pyddpdiag.system.processes import START_TOLERANCE_S
from pyddpdiag.trace.notes import read_note
from pyddpdiag.trace.now import FRESH_ELSEWHERE_MS

MOST: Final = 16384
BYTES: Final = 8192
_NAME: Final = re.compile(rf"rank_(0|[1-9][0-9]{{0,6}}){re.escape(SUFFIX)}")
_LATEST_S: Final = 3e10


def read_starts(folder: Path) -> tuple[Start, ...]:
    """The ranks that have a note in the folder of a run or an attempt, and no trace; sorted."""
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError:
        return ()
    ranks = sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))[:MOST]
    waiting = [rank for rank in ranks if f"rank_{rank}.ddptrace" not in names]
    found_ones = (_read(folder / f"rank_{rank}{SUFFIX}") for rank in waiting)
    return tuple(
        _seen(note) for rank, note in zip(waiting, found_ones, strict=True) if note and note.rank == rank
    )


def forget_ended(folder: Path) -> None:
    """Removes the notes of ranks of an earlier run, whose processes have ended: they are none of the next one's."""
    for path in folder.glob(f"**/rank_*{SUFFIX}"):
        note = _read(path)
        if note is not None and _status(note) == "dead":
            with suppress(OSError):
                path.unlink()


def _read(path: Path) -> StartNote | None:
    raw = read_note(path, BYTES)
    try:
        times = {name: number(raw[name], _LATEST_S) or 0.0 for name in ("began_s", "until_s")}
        note = from_json(StartNote, raw, **times)
    except MISFITS:
        return None
    return note if note.rank < note.world_size and note.since_ns <= note.until_ns else None


def _seen(note: StartNote) -> Start:
    status = _status(note)
    # A process that lives and was not looked at for a moment is still there: its interpreter is held at that line.
    held_s = max(0.0, time.time() - note.until_s) if status in ("running", "stopped") else 0.0
    return Start(
        note.rank,
        note.world_size,
        note.host,
        note.pid,
        status,
        note.where,
        note.waits_in,
        (note.until_ns - note.since_ns) / 1e9 + held_s,
        note.error,
    )


def _status(note: StartNote) -> ProcessStatus:
    if note.clock and (note.clock, note.host) == (clock_identity(), socket.gethostname()):
        process = processes.find(note.pid)
        is_it = process is not None and (process.started_s or 0.0) <= note.began_s + START_TOLERANCE_S
        if process is None or not is_it:
            return "dead"
        return "stopped" if process.stopped else "running"
    return "running" if abs(time.time() - note.until_s) <= FRESH_ELSEWHERE_MS / 1e3 else "unknown"
