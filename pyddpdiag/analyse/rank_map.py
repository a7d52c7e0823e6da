"""Which ranks need longer than the others, and when: ranks by steps, in a bounded number of cells for any run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.rows import Int64

ROWS: Final = 64
COLUMNS: Final = 60


@dataclass(frozen=True, eq=False)
class RankMap:
    """Rows are blocks of neighbouring ranks, columns are stretches of judged steps: [blocks, stretches].

    Attributes:
        low, high: the lowest and the highest rank of each block.
        first, last: the steps that each stretch begins and ends with.
        extra_ms: how much longer the block's slowest rank needs for its own part of a step than the lower median of
            all ranks, the mean over the stretch; at least 0, NaN = not known.
        slowest: which rank that is.
    """

    low: Int64
    high: Int64
    first: Int64
    last: Int64
    extra_ms: Float64
    slowest: Int64


def rank_map(steps: StepTable, rows: int = ROWS, columns: int = COLUMNS) -> RankMap | None:
    """The map of a run; None if the own time of no rank is known."""
    steps = steps.take(steps.judged & np.isfinite(steps.own_ms))
    if not len(steps):
        return None
    ranks, who = np.unique(steps.rank, return_inverse=True)
    numbers, begin, sizes = np.unique(steps.step, return_index=True, return_counts=True)
    of_step = np.arange(len(numbers)) * min(columns, len(numbers)) // len(numbers)
    stretches = int(of_step[-1]) + 1
    ordered = np.lexsort((steps.own_ms, steps.step))
    extra = steps.own_ms - np.repeat(steps.own_ms[ordered[begin + (sizes - 1) // 2]], sizes)
    cell = who * stretches + np.repeat(of_step, sizes)
    count = np.bincount(cell, minlength=len(ranks) * stretches)
    total = np.bincount(cell, extra, minlength=len(count))
    mean = np.divide(total, count, out=np.full(len(total), -np.inf), where=count > 0)
    mean = mean.reshape(len(ranks), stretches)
    blocks = np.arange(len(ranks)) * min(rows, len(ranks)) // len(ranks)
    edges = np.flatnonzero(np.diff(blocks, prepend=-1))
    ends = np.append(edges[1:], len(ranks))
    at = np.array([low + mean[low:end].argmax(axis=0) for low, end in zip(edges, ends, strict=True)])
    most = np.take_along_axis(mean, at, axis=0)
    starts = np.flatnonzero(np.diff(of_step, prepend=-1))
    return RankMap(
        ranks[edges],
        ranks[ends - 1],
        numbers[starts],
        numbers[np.append(starts[1:], len(numbers)) - 1],
        np.where(np.isfinite(most), np.maximum(most, 0.0), np.nan),
        ranks[at],
    )
