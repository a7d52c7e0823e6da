"""Which single steps are worth a look, and which of them is looked at first."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.rows import Int64

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
