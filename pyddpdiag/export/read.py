"""Reads a run's traces for other tools."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.analyse.details import gradient_norms, joined_norms, timeline
from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.summary import analyse
from pyddpdiag.analyse.view import RunView
from pyddpdiag.errors import TraceError, UsageError
from pyddpdiag.export.run import ClockBase, ExportedRun
from pyddpdiag.model.details import GradientNorms, RankTimeline
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.run import held_records, open_run

MOST_EVENTS: Final = 3_000_000
"""Of a trace in Chrome's format, over all ranks: no viewer opens more, and each takes 200 bytes."""


def read_run(
    source: str | PathLike[str],
    *,
    timelines: bool = True,
    steps: range | None = None,
    attempt: int | None = None,
    memory_gb: float = 0.0,
) -> ExportedRun:
    """Read a run's traces for exports.

    Args:
        source: the folder where the recorders wrote.
        timelines: also what each rank did.
        steps: of these steps only.
        attempt: as in `load_report`.
        memory_gb: as in `open_run`.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: there is no such attempt, or there is too much to show.
    """
    folder, _ = choose_attempt(Path(source), attempt)
    if timelines and steps is None:
        _check_records(sum(held_records(folder)))
    intake = Intake()
    run = open_run(folder, visit=intake.take, memory_gb=memory_gb)
    view = RunView(run, intake)
    offsets = {trace.rank: clock.offset_ns for trace, clock in zip(run.ranks, view.clocks, strict=True)}
    chosen = None if steps is None else np.arange(steps.start, steps.stop, dtype=np.int64)
    # Single events only of the steps that are shown: of a long run they are few.
    shown = chosen if timelines else np.empty(0, np.int64)
    lines: list[RankTimeline] = []
    norms: list[GradientNorms] = []

    def take(trace: RankTrace) -> None:
        # A run that has started again meanwhile is another one.
        if trace.header.run_id == run.run_id:
            lines.append(timeline(trace, offsets.get(trace.rank, 0), shown))
            norms.append(gradient_norms(trace))

    open_run(folder, visit=take, memory_gb=0.0 if timelines else memory_gb, steps=shown)
    if not lines:
        raise TraceError(f"{folder}: another run began there meanwhile.", hint="export it again.")
    found = ExportedRun(
        report=analyse(view),
        occurrences=view.occurrences,
        norms=joined_norms(norms),
        timelines=lines,
        bases={
            trace.rank: ClockBase(trace.header.monotonic_ns, trace.header.wall_ns, offsets[trace.rank])
            for trace in run.ranks
        },
        step_ends=view.step_ends,
        stacks=tuple(view.lines.collapsed()),
    )
    if timelines:
        _check_size(found)
    return found


def _check_records(records: int) -> None:
    """Before they are read: each is an event at least."""
    if records > MOST_EVENTS:
        raise UsageError(
            f"the run has {records / 1e6:.1f} million records, more events than any viewer opens.",
            hint="export a part of it, such as --steps 1000-2000; `pyddpdiag report` says which steps there are.",
        )


def _check_size(run: ExportedRun) -> None:
    amount = sum(
        7 * len(line.buckets) + 6 * len(line.steps) + len(line.collectives) for line in run.timelines
    )
    if amount > MOST_EVENTS:
        numbers = np.unique(run.report.steps.step)
        fit = max(1, int(len(numbers) * MOST_EVENTS / amount))
        first = int(numbers[0])
        raise UsageError(
            f"the run has some {amount / 1e6:.0f} million events, more than any viewer opens.",
            hint=f"export a part of it, such as --steps {first}-{first + fit}.",
        )
