"""Looks at what a rank does before its process group, its first module and that module's first pass: it works, or
waits for others there.

No recorder is open yet: many scripts have rank 0 unpack a data set there, and the others wait in a barrier, or to join
the group. Where they never come to train, a note beside the traces says at which line each rank is.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from pyddpdiag.record.script_lines import line_of_frame
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.start import marks
from pyddpdiag.start.note import StartNoteFile
from pyddpdiag.system.clock import monotonic_ns
from pyddpdiag.system.frames import main_frame

INTERVAL_S: Final = (0.02, 0.2)
"""Between two looks: at the beginning of a stretch, and after `OFTEN` of them."""

OFTEN: Final = 500
MOST: Final = 20_000
"""Looks: some hour. A script that makes no module by then has other things to do."""

WALK_LIMIT: Final = 200
LINES_LIMIT: Final = 1000

LEFT_NS: Final = 2 * 10**9
"""A line that was not seen for so long was left: a loop that waits for a file is at several lines by turns."""

_CALLS: Final = str(Path("torch", "distributed", "distributed_c10d.py"))
_DDP: Final = str(Path("torch", "nn", "parallel", "distributed.py"))
_NAMES: Final = 3
"""Lines of a stretch that are noted (`model.sidecar.line_names`)."""


class SetUp:
    """A daemon thread that looks at the main thread's frames, until it is closed; then it notes what it saw.

    `is_here` is false in a process that was forked from the one that has the thread.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self.note: StartNoteFile | None = None
        """Says where the rank is, once it is known which rank it is."""
        self._stays: dict[tuple[str, str], _Stay] = {}
        self.begin()
        self._thread = SideThread("pyddpdiag set-up", self._watch, rests_at_forks=True)

    @property
    def is_here(self) -> bool:
        """Whether this process has the thread."""
        return self._process == os.getpid()

    def joins(self) -> None:
        """Notes at which line the rank mostly was before it joins its process group."""
        self._thread.go_on()
        self._note_line("before_group_line")

    def begin(self) -> None:
        """Counts from now on: what the rank does next is another stretch."""
        self._waited_ns = self._seen_ns = self._looks = 0
        self._lines: Counter[str] = Counter()

    def makes_module(self) -> None:
        """Notes how long the rank waited for others since it has its group, and its most frequent line otherwise."""
        self._thread.go_on()
        if self._seen_ns:
            marks.keep("set_up_seen_ns", self._seen_ns)
            marks.keep("set_up_waited_ns", self._waited_ns)
            self._note_line("set_up_line")

    def close(self) -> None:
        """Ends the thread, and notes at which line the rank mostly was since it has its first module."""
        self._thread.close()
        # Also where nothing was seen: a rank that nobody looked at is no rank that did nothing.
        marks.keep("after_module_seen_ns", self._seen_ns)
        marks.keep("after_module_waited_ns", self._waited_ns)
        self._note_line("after_module_line")
        if self.note is not None:
            self.note.remove()

    def fails(self, error: str) -> None:
        """An exception ends the process: what it was, and its line. The note stays."""
        self._thread.close()
        if self.note is not None:
            self._note_stay(self.note, at_once=True)
            self.note.fails(error)

    def _note_line(self, name: str) -> None:
        # A copy: the thread may be counting.
        for place, (line, spent) in enumerate(self._lines.copy().most_common(_NAMES), 1):
            key = name if place == 1 else f"{name}_{place}"
            marks.keep(key, line)
            marks.keep(f"{key}_ns", spent)

    def _watch(self, over: Over) -> None:
        # Whatever goes wrong, a report only knows less of the start.
        with suppress(Exception):
            before = monotonic_ns()
            for _ in range(MOST):
                if over.wait(INTERVAL_S[self._looks >= OFTEN]):
                    break
                now = monotonic_ns()
                self._look(before, now)
                before = now

    def _look(self, before: int, now: int) -> None:
        """One look, which stands for the time since the one before."""
        frame = main_frame()
        passed = now - before
        self._looks += 1
        self._seen_ns += passed
        line, call = line_of_frame(frame), _meets_in(frame)
        if call == _CONSTRUCTION or not call:
            if line and (line in self._lines or len(self._lines) < LINES_LIMIT):
                self._lines[line] += passed
        else:
            self._waited_ns += passed
        if line:
            self._stay(line, call, before, now)

    def _stay(self, line: str, call: str, before: int, now: int) -> None:
        stay = self._stays.get((line, call))
        if stay is None or before - stay.until_ns > LEFT_NS:
            if len(self._stays) >= LINES_LIMIT:
                self._stays.clear()
            stay = self._stays[line, call] = _Stay(line, call, before)
        stay.until_ns = now
        stay.spent_ns += now - before
        if self.note is not None:
            self._note_stay(self.note)

    def _note_stay(self, note: StartNoteFile, *, at_once: bool = False) -> None:
        """The line at which it has been longest, of those that it has not left."""
        newest = max((stay.until_ns for stay in self._stays.values()), default=0)
        here = [stay for stay in self._stays.values() if newest - stay.until_ns <= LEFT_NS]
        if here:
            most = max(here, key=lambda stay: stay.spent_ns)
            note.note(most.line, most.call, most.since_ns, newest, at_once=at_once)


@dataclass
class _Stay:
    """Where the thread has been since, with short breaks; `call`: the function in which it meets the other ranks."""

    line: str
    call: str
    since_ns: int
    until_ns: int = 0
    spent_ns: int = 0

    def __post_init__(self) -> None:
        self.until_ns = self.since_ns


_CONSTRUCTION: Final = "DistributedDataParallel"


def _meets_in(frame: FrameType | None) -> str:
    """The call in which a thread meets the other ranks, as the script named it; empty: it is in none."""
    found = ""
    for _ in range(WALK_LIMIT):
        if frame is None:
            break
        code = frame.f_code
        if code.co_filename.endswith(_CALLS):
            found = code.co_name
        elif code.co_filename.endswith(_DDP) and code.co_name == "__init__":
            found = _CONSTRUCTION
        frame = frame.f_back
    return found
