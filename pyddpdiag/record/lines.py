"""Samples the main thread's Python stack, so that a report can name the line of a late rank, and the rank's memory."""

from __future__ import annotations

import json
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyddpdiag import _native
from pyddpdiag.model.lines import Lines, Stack, lines_beside, to_json
from pyddpdiag.record.memory import FIRST_NS, MemoryLooks
from pyddpdiag.record.owners_file import LAST_S, replace_file
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.record.stacks import looks_at_main_thread, named
from pyddpdiag.system.clock import monotonic_ns

WRITE_S: Final = (2.0, 60.0)
"""The least and the longest time between two writings of the file."""

WRITE_SHARE: Final = 0.2
"""The file is written when the run has become longer by this share."""

BETWEEN_S: Final = 0.05
"""How long to try to write the file while somebody reads it: meanwhile nobody looks at the stack."""

COST_SHARE: Final = 0.0006
"""Of a core, what writing the file may take, the first time aside. The looks have a bound of their own
(`csrc/core/trace/stack_samples.hpp`)."""


class LineSampler:
    """A daemon thread that looks at the main thread's stack, some 20 times a second at first. Never disturbs it.

    Args:
        trace: path of the trace; the samples lie beside it.
        run_id: of the run.
        core: what records; no looks while it is paused, and the thread ends when it is gone.
        stacks: False: it reads the memory and nothing else.
    """

    def __init__(self, trace: Path, run_id: bytes, core: _native.Recorder, *, stacks: bool = True) -> None:
        self._path = lines_beside(trace)
        self._run_id = run_id.hex()
        self._core = weakref.ref(core)
        self._looks = looks_at_main_thread() if stacks else None
        self._memory = MemoryLooks()
        self._named: dict[tuple[int, ...], Stack] = {}
        self._begun_ns = monotonic_ns()
        self._due_ns = self._begun_ns + int(1e9 * WRITE_S[0])
        self._lock = threading.Lock()
        self._thread = SideThread("pyddpdiag lines", self._watch)

    def close(self) -> None:
        """Ends the thread, and writes what it saw."""
        self._thread.close()
        with suppress(Exception):
            self._write(LAST_S)

    def _watch(self, over: Over) -> None:
        # Whatever goes wrong, a report only knows no lines.
        with suppress(Exception):
            self._look_on(over)

    def _look_on(self, over: Over) -> None:
        # As little Python as possible: neither its code nor its data are in the caches when a look comes.
        ends_within = over.within
        look = self._looks.look if self._looks is not None else lambda _: FIRST_NS / 1e9
        wait_s = look(True)
        while not ends_within(wait_s):
            core = self._core()
            if core is None:
                return
            wait_s = look(core.paused)
            del core  # it would keep the trace open
            self._memory.look()
            if monotonic_ns() >= self._due_ns:
                # What cannot be written now is written the next time, with all looks until then.
                with suppress(OSError):
                    self._write()

    def _write(self, within_s: float = BETWEEN_S) -> None:
        used = time.thread_time()
        try:
            with self._lock:
                lines = self._lines()
                if lines.at_ns or lines.memory.at_ns:
                    replace_file(
                        self._path, json.dumps(to_json(lines), separators=(",", ":")), within_s=within_s
                    )
        finally:
            self._due_ns = monotonic_ns() + int(1e9 * self._pause_s(time.thread_time() - used))

    def _pause_s(self, cost_s: float) -> float:
        """How long the file stays as it is, after a write of this processor time."""
        least, longest = WRITE_S
        age_s = (monotonic_ns() - self._begun_ns) / 1e9
        return min(longest, max(least, WRITE_SHARE * age_s, cost_s / COST_SHARE))

    def _lines(self) -> Lines:
        if self._looks is None:
            return Lines(self._run_id, FIRST_NS, 0, (), (), (), self._memory.kept())
        interval_ns, missed_ns, at_ns, places, stacks = self._looks.kept()
        known = self._named
        taken = [tuple(stack) for stack in stacks]
        self._named = {each: known.get(each) or named(each, self._looks) for each in taken}
        return Lines(
            self._run_id,
            interval_ns,
            missed_ns,
            tuple(self._named[each] for each in taken),
            tuple(at_ns),
            tuple(places),
            self._memory.kept(),
        )
