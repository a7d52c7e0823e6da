"""Reads a run a second time for what a page shows of single steps: only then is it known which ones are worth it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.analyse.shown_steps import step_to_open, steps_to_show
from pyddpdiag.analyse.timeline import gradient_norms, joined_norms, lateness, timeline
from pyddpdiag.errors import UsageError
from pyddpdiag.model.details import GradientNorms, Int64, RankTimeline, RunDetails
from pyddpdiag.model.report import RunReport
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.run import open_run

SAMPLED: Final = 400
"""Steps that lateness by bucket rests on, evenly over the run."""

SAMPLED_OF_ALL: Final = 2**15
"""Steps of a rank, at most, over all ranks."""


def run_details(
    report: RunReport, folder: Path, *, step: int | None = None, memory_gb: float = 0.0
) -> RunDetails:
    """What the traces in `folder` hold of the steps worth a look, and of `step`; `memory_gb` as in `open_run`.

    A run that has started again there in the meantime is left alone: its steps are others.

    Raises:
        TraceError: the traces can no longer be read.
        UsageError: there is no such step.
    """
    shown = steps_to_show(report)
    if step is not None:
        if not (report.steps.step == step).any():
            raise UsageError(f"step {step} is in no trace.", hint="leave --step out to see the slow ones.")
        shown = dict(sorted({**shown, step: "asked for"}.items()))
    wanted = np.array(sorted({*shown, *_sample(report).tolist()}), np.int64)
    offsets = {rank.rank: round(rank.clock.offset_ms * 1e6) for rank in report.ranks}
    lines: list[RankTimeline] = []
    norms: list[GradientNorms] = []

    def take(trace: RankTrace) -> None:
        if trace.header.run_id == report.run_id:
            lines.append(timeline(trace, offsets.get(trace.rank, 0), wanted))
            norms.append(gradient_norms(trace))

    open_run(folder, visit=take, memory_gb=memory_gb, steps=wanted)
    clock_errors = [rank.clock.uncertainty_ms for rank in report.ranks]
    clock_error_ms = (
        None
        if None in clock_errors
        else max((each for each in clock_errors if each is not None), default=0.0)
    )
    judged = _without(lines, np.array(report.steps.left_out, np.int64))
    return RunDetails(
        shown,
        tuple(line.take(np.array(sorted(shown), np.int64)) for line in lines),
        lateness(judged, clock_error_ms),
        joined_norms(norms) if norms else gradient_norms_of_none(),
        opens=step if step is not None else step_to_open(report),
    )


def gradient_norms_of_none() -> GradientNorms:
    """No rank was watched."""
    none = np.empty(0, np.int64)
    return GradientNorms(none, none, np.empty(0), np.empty(0), none)


def _sample(report: RunReport) -> Int64:
    """Judged steps, evenly over the run."""
    numbers = np.unique(report.steps.step[report.steps.judged])
    most = min(SAMPLED, max(1, SAMPLED_OF_ALL // len(report.ranks)))
    if len(numbers) <= most:
        return numbers
    return np.asarray(numbers[np.linspace(0, len(numbers) - 1, most).astype(np.int64)])


def _without(lines: list[RankTimeline], steps: Int64) -> list[RankTimeline]:
    every = [np.unique(line.buckets.step) for line in lines]
    return [line.take(np.setdiff1d(own, steps)) for line, own in zip(lines, every, strict=True)]
