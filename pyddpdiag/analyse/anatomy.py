"""What a step consists of on each rank, over the whole run: a bounded number of stretches, however long it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model import RunReport, StepTable
from pyddpdiag.trace.rows import Int64

STRETCHES: Final = 240
SLOW: Final = 8
"""So many of the slowest steps are worth a look."""

PARTS: Final = ("data_wait", "compute", "other", "late", "communication")
"""`other`: in other collectives than buckets. `late`: exposed communication beyond that of the rank that has least of
it, which is waiting for the last rank."""


@dataclass(frozen=True, eq=False)
class Anatomy:
    """Stretches of steps, and for each of `PARTS` its mean per step: [stretches, ranks] in ms, NaN = not known.

    `first` and `last` are the steps that a stretch begins and ends with. `wall` is what a step takes on its slowest
    rank: the median of the stretch, and the `worst` of its steps, which is step `worst_step`.
    """

    ranks: tuple[int, ...]
    first: Int64
    last: Int64
    parts: Mapping[str, Float64]
    wall: Float64
    worst: Float64
    worst_step: Int64

    def __len__(self) -> int:
        """Number of stretches."""
        return len(self.first)


@dataclass(frozen=True, eq=False)
class StepParts:
    """The same for every step: one row per step and rank, as in the `StepTable`."""

    data_wait: Float64
    compute: Float64
    other: Float64
    late: Float64
    communication: Float64


def step_parts(steps: StepTable) -> StepParts:
    """Splits what is exposed: the least over the ranks is communication itself, the rest is waiting for a rank."""
    _, begin, sizes = np.unique(steps.step, return_index=True, return_counts=True)
    # A rank whose value is not known may have had less.
    least = np.repeat(np.minimum.reduceat(steps.exposed_ms, begin), sizes) if len(steps) else steps.exposed_ms
    return StepParts(steps.data_wait_ms, steps.compute_ms, steps.other_ms, steps.exposed_ms - least, least)


def anatomy(steps: StepTable, stretches: int = STRETCHES) -> Anatomy:
    """The judged steps in at most so many stretches of equal length."""
    steps = steps.take(steps.judged)
    ranks, who = np.unique(steps.rank, return_inverse=True)
    numbers, begin, sizes = np.unique(steps.step, return_index=True, return_counts=True)
    count = min(stretches, len(numbers))
    of_step = np.arange(len(numbers)) * count // max(1, len(numbers))
    of_row = np.repeat(of_step, sizes)
    parts = step_parts(steps)
    table = {name: _means(getattr(parts, name), of_row, who, (count, len(ranks))) for name in PARTS}
    wall = np.fmax.reduceat(steps.wall_ms, begin) if len(steps) else np.empty(0)
    edges = np.searchsorted(of_step, np.arange(count))
    middle, worst, worst_step = np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, np.int64)
    for place, (low, high) in enumerate(zip(edges, [*edges[1:], len(numbers)], strict=True)):
        known = np.nan_to_num(wall[low:high], nan=-1.0)
        at = int(known.argmax())
        worst_step[place] = numbers[low + at]
        if known[at] >= 0:
            worst[place] = known[at]
            middle[place] = np.median(known[known >= 0])
    return Anatomy(
        tuple(ranks.tolist()),
        numbers[edges] if count else numbers,
        numbers[np.append(edges[1:], len(numbers)) - 1] if count else numbers,
        table,
        middle,
        worst,
        worst_step,
    )


def steps_to_show(report: RunReport) -> dict[int, str]:
    """Steps worth a look, each with its reason: slow ones, a typical one, and those that findings name; by number."""
    steps = report.steps
    numbers, begin = np.unique(steps.step, return_index=True)
    if not len(numbers):
        return {}
    wall = np.fmax.reduceat(steps.wall_ms, begin)
    judged = ~np.isin(numbers, np.array(steps.left_out, np.int64)) & np.isfinite(wall)
    shown: dict[int, str] = {}
    known = np.flatnonzero(judged)
    if len(known):
        order = known[np.argsort(-wall[known], kind="stable")]
        for place, at in enumerate(order[:SLOW].tolist()):
            shown[int(numbers[at])] = "the slowest" if place == 0 else "slow"
        middle = known[np.argmin(np.abs(wall[known] - np.median(wall[known])))]
        shown.setdefault(int(numbers[middle]), "typical")
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


def _means(values: Float64, rows: Int64, columns: Int64, shape: tuple[int, int]) -> Float64:
    """The mean of what is known in each cell; NaN where nothing is."""
    known = np.isfinite(values)
    at = rows[known] * shape[1] + columns[known]
    total = np.bincount(at, values[known], minlength=shape[0] * shape[1])
    count = np.bincount(at, minlength=shape[0] * shape[1])
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return np.asarray(mean.reshape(shape))
