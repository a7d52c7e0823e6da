"""Which steps are worth a look; and a second reading of a run, for what a page shows of these alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.timeline import gradient_norms, joined_norms, lateness, timeline
from pyddpdiag.errors import UsageError
from pyddpdiag.model.details import GradientNorms, RankTimeline, RunDetails
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64
from pyddpdiag.trace.run import open_run

SLOW: Final = 8
"""How many of the slowest steps are worth a look."""

_PAUSE: Final = 1.5
"""A step with a pause takes at least this many times the median step."""


def steps_to_show(report: RunReport) -> dict[int, str]:
    """Steps worth a look, each with its reason: slow ones, typical ones, and those that findings name; by number."""
    steps = report.steps
    numbers, wall, known = _walls(steps)
    if not len(numbers):
        return {}
    shown: dict[int, str] = {}
    if len(known):
        order = known[np.argsort(-wall[known], kind="stable")]
        for place, at in enumerate(order[:SLOW].tolist()):
            shown[int(numbers[at])] = "the slowest" if place == 0 else "slow"
        shown.setdefault(int(numbers[_nearest(wall, known)]), "typical")
    first = step_of_finding(report)
    if first is not None and shown.get(first) != "the slowest":
        shown[first] = "typical of the first finding"
    there = set(numbers.tolist())
    for finding in report.verdict.findings:
        if finding.since_step in there:
            shown.setdefault(int(finding.since_step or 0), f"{finding.kind} begins")
    for error in report.errors[:1]:
        if error.step in there:
            shown.setdefault(error.step, "an operation failed")
    for number, reason in ((int(numbers[0]), "the first"), (int(numbers[-1]), "the last")):
        shown.setdefault(number, reason)
    return dict(sorted(shown.items()))


def step_to_open(report: RunReport) -> int | None:
    """The step to look at first: one in which the first finding is as it usually is; without one, a typical step."""
    numbers, wall, known = _walls(report.steps)
    found = step_of_finding(report)
    if found is not None:
        return found
    if len(known):
        return int(numbers[_nearest(wall, known)])
    return int(numbers[-1]) if len(numbers) else None


def step_of_finding(report: RunReport) -> int | None:
    """A step that is typical of the first finding; None: there is none, or no step shows it."""
    if not report.verdict.findings:
        return None
    finding = report.verdict.findings[0]
    numbers, wall, known = _walls(report.steps)
    if finding.severity == "error":
        # What fails or is wrong does so in one step.
        return finding.since_step if finding.since_step in set(numbers.tolist()) else None
    until = finding.evidence.get("until_step")
    if finding.since_step is not None:
        known = known[numbers[known] >= finding.since_step]
    if isinstance(until, int):
        known = known[numbers[known] <= until]
    seen = _seen(finding, report.steps, numbers, wall)
    known = known[np.isfinite(seen[known])]
    if kind_of(finding).marks == "phase" and len(known):
        paused = known[wall[known] >= _PAUSE * np.median(wall[known])]
        known = paused if len(paused) else known
    return int(numbers[_nearest(seen, known, wall)]) if len(known) else None


def _seen(finding: Finding, steps: StepTable, numbers: Int64, wall: Float64) -> Float64:
    """How much of the finding there is in each step."""
    part = kind_of(finding).marks
    if part == "own" and finding.rank is not None:
        mine = steps.rank == finding.rank
        own = np.full(len(numbers), np.nan)
        own[np.searchsorted(numbers, steps.step[mine])] = steps.own_ms[mine]
        return own
    column = {"data_wait": steps.data_wait_ms, "communication": steps.communication_ms}.get(part)
    if column is None:
        return wall
    return np.asarray(np.fmin.reduceat(column, np.searchsorted(steps.step, numbers)))


def _nearest(values: Float64, known: Int64, also: Float64 | None = None) -> int:
    """The place whose value, and other value, is nearest to the median of the known ones."""
    apart = np.zeros(len(known))
    for each in (values, also):
        if each is not None:
            middle = float(np.median(each[known]))
            apart += np.abs(each[known] - middle) / max(abs(middle), 1e-9)
    return int(known[np.argmin(apart)])


def _walls(steps: StepTable) -> tuple[Int64, Float64, Int64]:
    """The steps' numbers, what each takes on its slowest rank, and the places of those that are judged and known."""
    numbers, begin = np.unique(steps.step, return_index=True)
    wall = np.fmax.reduceat(steps.wall_ms, begin) if len(numbers) else np.empty(0)
    judged = ~np.isin(numbers, np.array(steps.left_out, np.int64)) & np.isfinite(wall)
    return numbers, wall, np.flatnonzero(judged)


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
