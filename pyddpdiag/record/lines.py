"""Samples the Python stack of the main thread, so that a report can name the line of a rank that is late."""

from __future__ import annotations

import json
import random
import threading
import time
import weakref
from array import array
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyddpdiag.model.lines import SAMPLES_LIMIT, STACKS_LIMIT, Lines, Stack, lines_beside, to_json
from pyddpdiag.own_clock import monotonic_ns
from pyddpdiag.record.disk_wait import DiskWait
from pyddpdiag.record.owners_file import replace_file
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.record.stacks import Sample, named, sample

INTERVAL_NS: Final = 50_000_000
LATE_NS: Final = 20_000_000
"""A look this much later than it was due was held up."""

MOST_SHARE: Final = 0.002
"""The share of a core that the looks may take."""

CHECKED: Final = 100
"""How many looks there are between two checks of their cost."""

LONGEST_NS: Final = 8 * INTERVAL_NS
"""Because of their cost, looks never come less often than this: on a busy machine, every one of them seems costly."""

WRITE_S: Final = (2.0, 60.0)
"""The least and the longest time between two writings of the file."""

WRITE_SHARE: Final = 0.2
"""The file is written when the run has become longer by this share."""


class Samples:
    """A bounded table: when it is full, every second sample goes, and the looks come half as often.

    The same where they cost too much. So all samples of a run stand for equally long times, however long it lasts.
    Stacks that no sample needs any more go, too.
    """

    def __init__(self, limit: int = SAMPLES_LIMIT, stacks: int = STACKS_LIMIT) -> None:
        self.interval_ns = INTERVAL_NS
        self.missed_ns = 0
        self._limit = limit
        self._most = stacks
        self._at = array("q")
        self._stack = array("i")
        # The first stands for all for which there is no room.
        self._stacks: list[Sample | None] = [None]
        self._places: dict[Sample, int] = {}
        self._named: dict[Sample, Stack] = {}
        self._looks, self._cost_ns = 0, 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._at)

    def add(self, at_ns: int, taken: Sample, late_ns: int = 0) -> None:
        """One sample; `late_ns`: how long after it was due."""
        if late_ns > LATE_NS:
            self.missed_ns += late_ns
        if len(self._at) == self._limit:
            self._thin()
        self._at.append(at_ns)
        self._stack.append(self._place(taken))

    def spent(self, cost_ns: int) -> None:
        """What a look cost in processor time. Where that is too much, the looks come half as often."""
        self._looks += 1
        self._cost_ns += cost_ns
        if self._looks == CHECKED:
            if self._cost_ns > MOST_SHARE * CHECKED * self.interval_ns and self.interval_ns < LONGEST_NS:
                self._thin()
            self._looks, self._cost_ns = 0, 0

    def lines(self, run_id: str) -> Lines:
        """All of them, named."""
        stacks = tuple(Stack() if taken is None else self._name(taken) for taken in self._stacks)
        return Lines(run_id, self.interval_ns, self.missed_ns, stacks, tuple(self._at), tuple(self._stack))

    def _name(self, taken: Sample) -> Stack:
        found = self._named.get(taken)
        if found is None:
            found = self._named[taken] = named(taken)
        return found

    def _place(self, taken: Sample) -> int:
        place = self._places.get(taken)
        if place is not None:
            return place
        if len(self._stacks) == self._most:
            return 0
        self._places[taken] = place = len(self._stacks)
        self._stacks.append(taken)
        return place

    def _thin(self) -> None:
        self._at = self._at[1::2]
        kept = [self._stacks[place] for place in self._stack[1::2]]
        self._stacks, self._places, self._stack = [None], {}, array("i")
        self._stack.extend(0 if taken is None else self._place(taken) for taken in kept)
        self._named = {taken: name for taken, name in self._named.items() if taken in self._places}
        self.interval_ns *= 2


class LineSampler:
    """A daemon thread that looks at the main thread's stack, some 20 times a second at first. Never disturbs it.

    Args:
        trace: path of the trace; the samples lie beside it.
        run_id: of the run.
        is_paused: whether nothing is being recorded on purpose; the thread ends when this is gone.
    """

    def __init__(self, trace: Path, run_id: bytes, is_paused: weakref.WeakMethod[Callable[[], bool]]) -> None:
        self._path = lines_beside(trace)
        self._run_id = run_id.hex()
        self._is_paused = is_paused
        self._samples = Samples()
        self._begun_ns = monotonic_ns()
        self._written_ns = self._begun_ns
        self._lock = threading.Lock()
        self._waits_for_disk = DiskWait()
        # Its own numbers: those of the script must come out the same.
        self._random = random.Random()
        self._thread = SideThread("pyddpdiag lines", self._watch)

    def close(self) -> None:
        """Ends the thread, and writes what it saw."""
        self._thread.close()
        with suppress(Exception):
            self._write()
        self._waits_for_disk.close()

    def _watch(self, over: Over) -> None:
        # Whatever goes wrong, a report only knows no lines.
        with suppress(Exception):
            self._look_on(over)

    def _look_on(self, over: Over) -> None:
        used_ns = time.thread_time_ns()
        while True:
            # Not at the same moment of each step, however regular the steps are.
            wait_ns = int(self._samples.interval_ns * self._random.uniform(0.5, 1.5))
            due_ns = monotonic_ns() + wait_ns
            if over.wait(wait_ns / 1e9):
                return
            is_paused = self._is_paused()
            if is_paused is None:
                return
            paused = is_paused()
            del is_paused  # it would keep the recorder alive
            taken = None if paused else sample(self._waits_for_disk())
            now = monotonic_ns()
            if taken is not None:
                self._samples.add(now, taken, now - due_ns)
            least, longest = WRITE_S
            pause_s = min(longest, max(least, WRITE_SHARE * (now - self._begun_ns) / 1e9))
            if len(self._samples) and now - self._written_ns >= pause_s * 1e9:
                self._write()
                self._written_ns = now
            before_ns, used_ns = used_ns, time.thread_time_ns()
            self._samples.spent(used_ns - before_ns)

    def _write(self) -> None:
        if not len(self._samples):
            return
        with self._lock:
            lines: dict[str, Any] = to_json(self._samples.lines(self._run_id))
            replace_file(self._path, json.dumps(lines, separators=(",", ":")))


__all__ = ["LineSampler", "Samples"]
