"""One look at a run that may be running: its newest records, and the signs of life of its ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.now import Now, RankNow
from pyddpdiag.system.clock import monotonic_ns
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.folder import find_traces
from pyddpdiag.trace.now import FRESH_MS, is_own_clock, observe
from pyddpdiag.trace.reader import RankTrace, read_trace
from pyddpdiag.trace.run import Run, open_run

LEAST_STILL_MS: Final = 1_500.0
"""Whoever asks suspects something: a silence of this length, and of ten steps, is a standstill to this command."""

MOST_RECORDS: Final = 2**17
"""Records to read of all ranks together: a fraction of a second."""

LEAST_RECORDS: Final = 2**9
MOST_OF_RANK: Final = 2**13


@dataclass(frozen=True, eq=False)
class Look:
    """What one look at a folder saw."""

    run: Run
    view: RunView

    @cached_property
    def beat_s(self) -> dict[int, float]:
        """How long ago each rank gave its last heartbeat; ranks that give none are not in it."""
        return {
            now.rank: max(0.0, now.beat_age_ms / 1e3)
            for now in self.view.now.ranks
            if now.beat_age_ms is not None
        }

    @cached_property
    def marks(self) -> dict[int, tuple[object, ...]]:
        """By rank, what changes whenever it records something."""
        open_ones: dict[int, list[object]] = {}
        for operation in self.view.in_flight.first:
            open_ones.setdefault(operation.rank, []).append((operation.what, operation.sequence))
        return {
            trace.rank: (trace.header.tickets, trace.newest_ns, tuple(open_ones.get(trace.rank, ())))
            for trace in self.run.ranks
        }

    def moved_since(self, earlier: Look) -> frozenset[int]:
        """The ranks that have recorded something since an earlier look; all if the run is another one."""
        if self.run.run_id != earlier.run.run_id:
            return frozenset(self.marks)
        return frozenset(rank for rank, mark in self.marks.items() if earlier.marks.get(rank) != mark)


def look(folder: Path, earlier: Look | None = None) -> Look:
    """Look at a run's newest records. `earlier`: the look before, against which heartbeats are compared.

    Raises:
        TraceError: there are no traces, or none can be read.
    """
    folder, _ = choose_attempt(folder)
    count = max(1, len(find_traces(folder)[0]))
    newest = min(MOST_OF_RANK, max(LEAST_RECORDS, MOST_RECORDS // count))
    intake = Intake()
    run = open_run(folder, intake.take, partial(read_trace, newest=newest))
    return look_at(run, intake, earlier)


def look_at(run: Run, intake: Intake, earlier: Look | None = None) -> Look:
    """The look at a run that was read just now."""
    before = {} if earlier is None else {trace.rank: trace for trace in earlier.run.ranks}
    # A rank that goes on is seen to do so by the next look: a late file need not be waited for.
    seen = observe(run, fresh_elsewhere_ms=FRESH_MS)
    ranks = tuple(
        _signs_of_life(trace, now, before.get(trace.rank))
        for trace, now in zip(run.ranks, seen.ranks, strict=True)
    )
    return Look(run, RunView(run, intake, now=Now(seen.reader_ns, ranks), least_still_ms=LEAST_STILL_MS))


def _signs_of_life(trace: RankTrace, seen: RankNow, before: RankTrace | None) -> RankNow:
    """What is known of a rank's process: where it cannot be seen, what changed since an earlier look tells."""
    if seen.silent_ms is None and trace.newest_ns:
        seen = replace(seen, silent_ms=1e3 * _age_s(trace, trace.newest_ns))
    if seen.status != "unknown" or before is None or before.header.run_id != trace.header.run_id:
        return seen
    moved = before.header.heartbeat_ns < trace.header.heartbeat_ns or before.newest_ns < trace.newest_ns
    return replace(seen, status="running") if moved else seen


def _age_s(trace: RankTrace, at_ns: int) -> float:
    """How long ago a time of the trace's clock was; by the wall clocks of both machines if it is another clock."""
    header = trace.header
    if is_own_clock(header):
        return max(0, monotonic_ns() - at_ns) / 1e9
    return max(0.0, time.time() - (header.wall_ns + at_ns - header.monotonic_ns) / 1e9)
