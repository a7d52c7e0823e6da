"""Findings about time: a late rank, waiting for data, exposed communication.

Every finding needs its cost to be at least a millisecond and a fair share of the step, and the median to
clear that bar with 99% confidence. A rank's lateness is told from its own time (from leaving one all-reduce
to handing over the next), not from arrival times: that needs no common clock, and a rank that only waited for
others is not blamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.model import BucketStats, Finding, StepTable
from pyddpdiag.model.findings import Confidence
from pyddpdiag.model.words import count, milliseconds, percent

LEAST_STEPS: Final = 4
MANY_STEPS: Final = 10
LEAST_MS: Final = 1.0
LATE_SHARE: Final = 0.10
EXPOSED_SHARE: Final = 0.25
DATA_SHARE: Final = 0.20
UNEVEN_SHARE: Final = 0.25


@dataclass(frozen=True, eq=False)
class StepMatrix:
    """Judged steps that every training rank has: [steps, ranks] float64 in ms, NaN = not known."""

    ranks: tuple[int, ...]
    wall: Float64
    data_wait: Float64
    exposed: Float64
    own: Float64

    @property
    def steps(self) -> int:
        """How many steps can be judged by any of the columns."""
        return int(np.count_nonzero(~np.isnan(self.wall).all(axis=1))) if self.wall.size else 0

    @property
    def wall_ms(self) -> float:
        """The median step; NaN = not known."""
        return median(self.wall.ravel())


def median(values: Float64) -> float:
    """The median of what is known; NaN if nothing is."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def matrix(steps: StepTable) -> StepMatrix:
    """The judged steps that all training ranks have, as matrices.

    Steps without an all-reduce (accumulation under no_sync) are added to the next one that has one: only
    there the ranks meet.
    """
    ranks = np.unique(steps.rank[steps.buckets > 0])
    judged = steps.take(steps.judged & np.isin(steps.rank, ranks))
    _, begin, sizes = np.unique(judged.step, return_index=True, return_counts=True)
    full = begin[sizes == len(ranks)] if len(ranks) else begin[:0]
    rows = full[:, None] + np.arange(len(ranks))[None, :]
    meets = np.flatnonzero((judged.buckets[rows] > 0).any(axis=1))
    if not len(meets):
        none = np.empty((0, len(ranks)))
        return StepMatrix(tuple(ranks.tolist()), none, none, none, none)
    starts = np.concatenate([[0], meets[:-1] + 1])
    wall, data_wait = (
        np.add.reduceat(column[rows[: meets[-1] + 1]], starts, axis=0)
        for column in (judged.wall_ms, judged.data_wait_ms)
    )
    at = rows[meets]
    return StepMatrix(tuple(ranks.tolist()), wall, data_wait, judged.exposed_ms[at], judged.own_ms[at])


def find_timing(steps: StepMatrix, buckets: Sequence[BucketStats]) -> list[Finding]:
    """All findings about time."""
    if steps.steps < LEAST_STEPS:
        return []
    late = _late_ranks(steps)
    found = late + _data_wait(steps) + _exposed(steps, buckets)
    return found if late else found + _uneven(steps)


def extra_ms(own: Float64) -> Float64:
    """How much longer each rank needs than the lower median of all ranks; [steps, ranks]."""
    return np.asarray(own - np.sort(own, axis=1)[:, (own.shape[1] - 1) // 2, None])


def _confidence(steps: int) -> Confidence:
    return "high" if steps >= MANY_STEPS else "medium"


def _late_ranks(steps: StepMatrix) -> list[Finding]:
    rows = ~np.isnan(steps.own).any(axis=1)
    if len(steps.ranks) < 2 or np.count_nonzero(rows) < LEAST_STEPS or np.isnan(steps.wall_ms):
        return []
    extra = extra_ms(steps.own[rows])
    waits = extra_ms(np.nan_to_num(steps.data_wait[rows]))
    bar = max(LEAST_MS, LATE_SHARE * steps.wall_ms)
    found = []
    for place, rank in enumerate(steps.ranks):
        sure = sure_median(extra[:, place])
        if sure <= bar:
            continue
        typical, often = median(extra[:, place]), float(np.mean(extra[:, place] > bar))
        data = median(waits[:, place])
        from_data = data > 0.5 * typical
        why = f", {milliseconds(data)} of it waiting for data" if from_data else ""
        found.append(
            Finding(
                kind="late_rank",
                severity="warning",
                message=f"rank {rank} is late: it needs {milliseconds(typical)} more than the others for "
                "its own part of a "
                f"step{why}, in {percent(often)} of {count(len(extra), 'step')}; the others wait for it.",
                confidence=_confidence(len(extra)),
                rank=rank,
                evidence={
                    "extra_ms": typical,
                    "extra_at_least_ms": sure,
                    "share_of_steps": often,
                    "steps": len(extra),
                    "step_ms": steps.wall_ms,
                    "data_wait_extra_ms": data,
                },
                change_mind="If lateness follows the data to another rank, the inputs cause it.",
                advice="Look at its data loading: more loader workers, a faster disk."
                if from_data
                else "Look for another load on its machine, a slower processor, fewer threads, or larger "
                "inputs.",
            )
        )
    found.sort(key=lambda finding: -float(finding.evidence["extra_ms"] or 0))
    return found[:3]


def _uneven(steps: StepMatrix) -> list[Finding]:
    """Some rank is always late, but not always the same one."""
    rows = ~np.isnan(steps.own).any(axis=1)
    if len(steps.ranks) < 2 or np.count_nonzero(rows) < LEAST_STEPS or np.isnan(steps.wall_ms):
        return []
    worst = extra_ms(steps.own[rows]).max(axis=1)
    if sure_median(worst) <= max(LEAST_MS, UNEVEN_SHARE * steps.wall_ms):
        return []
    return [
        Finding(
            kind="uneven_ranks",
            severity="note",
            message=f"in a typical step the slowest rank needs {milliseconds(median(worst))} more than the "
            "others, but it is "
            "not always the same one.",
            confidence=_confidence(len(worst)),
            evidence={"extra_ms": median(worst), "steps": len(worst), "step_ms": steps.wall_ms},
            change_mind="One rank turns out slower over a longer run.",
            advice="Inputs of very different length, or more busy threads than cores, do this.",
        )
    ]


def _data_wait(steps: StepMatrix) -> list[Finding]:
    waited = _lower_median(steps.data_wait)
    share = waited / np.where(steps.wall_ms > 0, steps.wall_ms, np.nan)
    if np.count_nonzero(~np.isnan(waited)) < LEAST_STEPS:
        return []
    if not (sure_median(waited) >= LEAST_MS and sure_median(share) >= DATA_SHARE):
        return []
    return [
        Finding(
            kind="data_wait",
            severity="warning",
            message=f"The ranks wait for data: {milliseconds(median(waited))} of "
            f"{milliseconds(steps.wall_ms)} per step "
            f"({percent(median(share))}) go by before the loader gives a batch.",
            confidence=_confidence(steps.steps),
            evidence={"data_wait_ms": median(waited), "step_ms": steps.wall_ms, "share": median(share)},
            change_mind="The steps contain a pause on purpose (evaluation, checkpoints) before the next "
            "batch.",
            advice="Give the loader more workers (num_workers), prefetching, or a larger batch.",
        )
    ]


def exposed_ms(steps: StepMatrix) -> Float64:
    """Exposed communication of each step that no late rank explains: the least over the ranks."""
    return np.asarray(steps.exposed.min(axis=1)) if steps.exposed.size else np.empty(0)


def _exposed(steps: StepMatrix, buckets: Sequence[BucketStats]) -> list[Finding]:
    # The rank that came last waits for nobody, so its wait is communication proper.
    least = exposed_ms(steps)
    share = least / np.where(steps.wall_ms > 0, steps.wall_ms, np.nan)
    if np.count_nonzero(~np.isnan(least)) < LEAST_STEPS:
        return []
    if not (sure_median(least) >= LEAST_MS and sure_median(share) >= EXPOSED_SHARE):
        return []
    costs = {bucket.bucket: _exposed_cost(bucket) for bucket in buckets if not bucket.first_steps_only}
    worst = max(costs, key=lambda key: costs[key], default=None)
    blamed = next((bucket for bucket in buckets if bucket.bucket == worst), None)
    parts = {
        name: sum((getattr(b.times, f"{name}_ms").median or 0.0) * b.judged for b in buckets)
        for name in ("arrival", "queue", "wire")
    }
    largest = max(parts, key=lambda name: parts[name])
    alone = sum(not bucket.first_steps_only for bucket in buckets) == 1
    return [
        Finding(
            kind="exposed_communication",
            severity="warning",
            message=f"Communication is {percent(median(share))} exposed: {milliseconds(median(least))} of "
            f"{milliseconds(steps.wall_ms)} per step are spent waiting for buckets after backward ended.",
            confidence=_confidence(int(np.count_nonzero(~np.isnan(least)))),
            bucket=worst,
            parameter=blamed.parameters[0] if blamed and blamed.parameters else None,
            evidence={
                "exposed_ms": median(least),
                "step_ms": steps.wall_ms,
                "share": median(share),
                "largest_part": largest,
                **{f"{name}_total_ms": value for name, value in parts.items()},
            },
            change_mind="The processor is shared with other work, so that all-reduces get less of it than "
            "in earnest.",
            advice=_exposed_advice(largest, alone),
        )
    ]


def _exposed_cost(bucket: BucketStats) -> float:
    hidden = bucket.times.hidden_fraction.median
    return bucket.cost_ms * (1.0 - (hidden if hidden is not None else 0.0))


def _exposed_advice(largest: str, alone: bool) -> str:
    if alone:
        return (
            "All gradients are in one bucket, so nothing is sent before backward ends: lower bucket_cap_mb."
        )
    return {
        "arrival": "Most of the buckets' time is waiting for the slowest rank: even out the ranks first.",
        "queue": "Buckets queue for Gloo's worker threads: try fewer, larger buckets (bucket_cap_mb).",
        "wire": "The transfer itself takes longest: less data (bfloat16, accumulation) or a faster link.",
    }[largest]


def _lower_median(values: Float64) -> Float64:
    """The lower median over the ranks of each step; NaN where a rank's value is not known."""
    if not values.size:
        return np.empty(0)
    middle = np.sort(values, axis=1)[:, (values.shape[1] - 1) // 2]
    return np.where(np.isnan(values).any(axis=1), np.nan, middle)
