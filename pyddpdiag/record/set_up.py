"""Looks at what a rank does before its process group, its first module and that module's first pass: it works, or
waits for others there.

No recorder is open yet: many scripts have rank 0 unpack a data set there, and the others wait in a barrier, or to join
the group.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from pyddpdiag import start_up
from pyddpdiag.frames import main_frame
from pyddpdiag.model.sidecar import line_names
from pyddpdiag.own_clock import monotonic_ns
from pyddpdiag.record.script_lines import lines_of_frame
from pyddpdiag.record.side_thread import Over, SideThread

INTERVAL_S: Final = (0.02, 0.2)
"""Between two looks: at first, and after `OFTEN` of them."""

OFTEN: Final = 500
MOST: Final = 20_000
"""Looks: some hour. A script that makes no module by then has other things to do."""

WALK_LIMIT: Final = 200
LINES_LIMIT: Final = 1000

_CALLS: Final = str(Path("torch", "distributed", "distributed_c10d.py"))


class SetUp:
    """A daemon thread that looks at the main thread's frames, until it is closed; then it notes what it saw.

    `is_here` is false in a process that was forked from the one that has the thread.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self.begin()
        self._thread = SideThread("pyddpdiag set-up", self._watch)

    @property
    def is_here(self) -> bool:
        """Whether this process has the thread."""
        return self._process == os.getpid()

    def joins(self) -> None:
        """Notes at which line the rank mostly was before it joins its process group."""
        self._note_line("before_group_line")

    def begin(self) -> None:
        """Counts from now on: what the rank does next is another stretch."""
        self._waited_ns = self._seen_ns = 0
        self._lines: Counter[str] = Counter()

    def makes_module(self) -> None:
        """Notes how long the rank waited for others since it has its group, and its most frequent line otherwise."""
        if self._seen_ns:
            start_up.keep("set_up_seen_ns", self._seen_ns)
            start_up.keep("set_up_waited_ns", self._waited_ns)
            self._note_line("set_up_line")

    def close(self) -> None:
        """Ends the thread, and notes at which line the rank mostly was since it has its first module."""
        self._thread.close()
        # Also where nothing was seen: a rank that nobody looked at is no rank that did nothing.
        start_up.keep("after_module_seen_ns", self._seen_ns)
        self._note_line("after_module_line")

    def _note_line(self, name: str) -> None:
        # A copy: the thread may be counting.
        for key, (line, spent) in zip(line_names(name), self._lines.copy().most_common(), strict=False):
            start_up.keep(key, line)
            start_up.keep(f"{key}_ns", spent)

    def _watch(self, over: Over) -> None:
        # Whatever goes wrong, a report only knows less of the start.
        with suppress(Exception):
            before = monotonic_ns()
            for look in range(MOST):
                if over.wait(INTERVAL_S[look >= OFTEN]):
                    break
                now = monotonic_ns()
                self._look(now - before)
                before = now

    def _look(self, passed_ns: int) -> None:
        """One look, which stands for the time since the one before."""
        frame = main_frame()
        self._seen_ns += passed_ns
        if _waits(frame):
            self._waited_ns += passed_ns
            return
        lines = lines_of_frame(frame)
        if lines and (lines[-1] in self._lines or len(self._lines) < LINES_LIMIT):
            self._lines[lines[-1]] += passed_ns


def _waits(frame: FrameType | None) -> bool:
    """Whether a thread is in a call of torch.distributed."""
    for _ in range(WALK_LIMIT):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(_CALLS):
            return True
        frame = frame.f_back
    return False


__all__ = ["SetUp"]
