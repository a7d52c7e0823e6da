"""What exports are made of: the report, every occurrence of a bucket, and what each rank did in the chosen steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.details import gradient_norms_of_none
from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.occurrences import Occurrences
from pyddpdiag.analyse.steps import StepEnds
from pyddpdiag.analyse.summary import analyse
from pyddpdiag.analyse.timeline import gradient_norms, joined_norms, timeline
from pyddpdiag.analyse.view import RunView
from pyddpdiag.errors import TraceError, UsageError
from pyddpdiag.model.details import GradientNorms, RankTimeline
from pyddpdiag.model.report import RunReport
from pyddpdiag.report.events import last_arrivals
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64
from pyddpdiag.trace.run import held_records, open_run


@dataclass(frozen=True)
class ClockBase:
    """One moment on both clocks of a rank, its trace's and the wall clock; `offset_ns` leads to the common clock."""

    monotonic_ns: int
    wall_ns: int
    offset_ns: int


@dataclass(frozen=True, eq=False)
class ExportedRun:
    """A run as it was read for exports. Timelines are on the common clock; `bases` and `step_ends` are by rank.

    `stacks`: lines that say how many looks saw which stack on which rank.
    """

    report: RunReport
    occurrences: Occurrences
    norms: GradientNorms
    timelines: Sequence[RankTimeline]
    bases: Mapping[int, ClockBase]
    step_ends: Mapping[int, StepEnds]
    stacks: Sequence[str] = ()

    def wall_s(self, rank: int, step: Int64) -> npt.NDArray[np.float64]:
        """When these steps of a rank ended, by its wall clock, seconds since 1970; like the one before if not known."""
        base, ends = self.bases[rank], self.step_ends[rank]
        known = ends.at_ns > 0
        if not known.any():
            return np.full(len(step), base.wall_ns / 1e9)
        at = np.maximum(0, np.searchsorted(ends.step[known], step, "right") - 1)
        return np.asarray((base.wall_ns + (ends.at_ns[known][at] - base.monotonic_ns)) / 1e9)

    @cached_property
    def first_base(self) -> ClockBase:
        """When the first rank's recorder was opened: no event of any rank was before."""
        return min(self.bases.values(), key=lambda base: base.monotonic_ns + base.offset_ns)

    @cached_property
    def last_arrivals(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By group and sequence of each bucket's all-reduce: when the last rank brought it, and which one."""
        return last_arrivals(self.timelines)


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
        norms=joined_norms(norms) if norms else gradient_norms_of_none(),
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
