"""The judged steps of all ranks side by side: what every check about time works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_MS, LEAST_STEPS, LONG
from pyddpdiag.analyse.grouped import Float32, Float64
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.rows import Bool, Int64


@dataclass(frozen=True, eq=False)
class StepMatrix:
    """Judged steps that every training rank has: [steps, ranks] float64 in ms, NaN = not known.

    `step` holds the number of each.
    """

    ranks: tuple[int, ...]
    step: Int64
    wall: Float64
    data_wait: Float64
    exposed: Float64
    own: Float64
    other: Float64 = field(default_factory=lambda: np.empty((0, 0)))

    @cached_property
    def place_of(self) -> dict[int, int]:
        """The column of each rank."""
        return {rank: place for place, rank in enumerate(self.ranks)}

    # Checks ask for the next two once per rank, so they are found once.
    @cached_property
    def steps(self) -> int:
        """How many steps can be judged in any of the columns."""
        return int(np.count_nonzero(~np.isnan(self.wall).all(axis=1))) if self.wall.size else 0

    @cached_property
    def wall_ms(self) -> float:
        """The median step, each as long as on its slowest rank: what every page says; NaN = not known."""
        return median(step_walls(self))

    @property
    def can_judge(self) -> bool:
        """Whether there are enough steps to find anything about time."""
        return self.steps >= LEAST_STEPS


def median(values: Float64) -> float:
    """The median of what is known; NaN if nothing is."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def step_walls(steps: StepMatrix) -> Float64:
    """What each step took on its slowest rank; NaN = not known."""
    return np.asarray(np.fmax.reduce(steps.wall, axis=1)) if steps.wall.size else np.empty(0)


def judged_walls(steps: StepTable) -> tuple[Int64, Float64]:
    """Number and length of each judged step that is known, as in the matrix; where that is empty, as in the table."""
    found = matrix(steps)
    number, walls = found.step, step_walls(found)
    if not np.isfinite(walls).any():
        judged = steps.take(steps.judged)
        number, begin = np.unique(judged.step, return_index=True)
        walls = np.fmax.reduceat(judged.wall_ms, begin) if len(number) else np.empty(0)
    known = np.isfinite(walls)
    return number[known], walls[known]


def are_long(spans: Float64) -> Bool:
    """Which steps are looked at by themselves, because they are much longer than the others."""
    return np.asarray(spans > LONG * median(spans) + LEAST_MS)


def column_medians(values: Float64) -> Float64:
    """What is usual on each rank: the median over the steps; all values must be known."""
    return np.asarray(np.median(values, axis=0))


def beyond_usual(values: Float64) -> Float64:
    """How much more than usual on its rank each value is, at least 0; all values must be known."""
    return np.asarray(np.maximum(values - column_medians(values), 0.0))


def matrix(steps: StepTable) -> StepMatrix:
    """The judged steps that all training ranks have, as matrices.

    Steps without an all-reduce (accumulation under no_sync) are added to the next one that has one: the ranks
    meet only there.
    """
    meeting = steps.buckets > 0
    if not meeting.any() and keep_pace(steps):
        # FSDP and replicate() have no buckets: their ranks meet in other collectives.
        meeting = ~np.isnan(steps.own_ms)
    ranks = np.unique(steps.rank[meeting])
    chosen = steps.judged & np.isin(steps.rank, ranks)
    judged, meeting = steps.take(chosen), meeting[chosen]
    _, begin, sizes = np.unique(judged.step, return_index=True, return_counts=True)
    full = begin[sizes == len(ranks)] if len(ranks) else begin[:0]
    rows = full[:, None] + np.arange(len(ranks))[None, :]
    meets = np.flatnonzero(meeting[rows].any(axis=1))
    if not len(meets):
        none = np.empty((0, len(ranks)))
        return StepMatrix(tuple(ranks.tolist()), judged.step[:0], none, none, none, none, none)
    starts = np.concatenate([[0], meets[:-1] + 1])
    wall, data_wait, other = (
        np.add.reduceat(column[rows[: meets[-1] + 1]], starts, axis=0)
        for column in (judged.wall_ms, judged.data_wait_ms, judged.other_ms)
    )
    at = rows[meets]
    return StepMatrix(
        tuple(ranks.tolist()),
        judged.step[full[meets]],
        wall,
        data_wait,
        judged.exposed_ms[at],
        judged.own_ms[at],
        other,
    )


def keep_pace(steps: StepTable) -> bool:
    """Whether all ranks need equally long, to within a step, for all steps that they have in common.

    Those that meet in every step do. Those that never meet drift apart.
    """
    ranks, who = np.unique(steps.rank, return_inverse=True)
    known = steps.judged & ~np.isnan(steps.wall_ms)
    _, at = np.unique(steps.step, return_inverse=True)
    whole = np.bincount(at[known], minlength=int(at.max(initial=-1)) + 1)[at] == len(ranks)
    took = np.bincount(who[known & whole], steps.wall_ms[known & whole], minlength=len(ranks))
    return len(ranks) > 1 and bool(took.max() - took.min() <= median(steps.wall_ms[known & whole]))


def extra_ms(own: Float64) -> Float64:
    """How much longer each rank needs than the lower median of all ranks; [steps, ranks]."""
    return np.asarray(own - np.sort(own, axis=1)[:, (own.shape[1] - 1) // 2, None])


def beyond_mean(values: Float64) -> Float64:
    """By how much the greatest value of each step exceeds the mean over the ranks; [steps]."""
    return np.asarray(values.max(axis=1) - values.mean(axis=1))


def exposed_ms(steps: StepMatrix) -> Float64:
    """Exposed communication of each step that no late rank explains: the least over the ranks."""
    return np.asarray(steps.exposed.min(axis=1)) if steps.exposed.size else np.empty(0)


def other_ms(steps: StepMatrix) -> Float64:
    """Time in other collectives than buckets in each step: the least over the ranks, as one may wait for another."""
    return np.asarray(steps.other.min(axis=1)) if steps.other.size else np.empty(0)


def lower_median(values: Float64) -> Float64:
    """The lower median over the ranks of each step; NaN where a rank's value is not known."""
    if not values.size:
        return np.empty(0)
    middle = np.sort(values, axis=1)[:, (values.shape[1] - 1) // 2]
    return np.where(np.isnan(values).any(axis=1), np.nan, middle)


def side_by_side(columns: Sequence[tuple[Int64, Float32 | Float64]], steps: Int64) -> Float64:
    """One column per rank with its values in these steps."""
    table = np.full((len(steps), len(columns)), np.nan)
    for place, (step, values) in enumerate(columns):
        at = np.minimum(np.searchsorted(step, steps), max(0, len(step) - 1))
        if len(step):
            table[:, place] = np.where(step[at] == steps, values[at], np.nan)
    return table
