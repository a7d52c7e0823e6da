"""What a page shows of a run in a bounded number of cells: what steps consist of, and which ranks need longer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import MATTERS_SHARE
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.cube import OWN, Cube
from pyddpdiag.model.cube import PARTS as ALL_PARTS
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.rows import Int64

STRETCHES: Final = 240
FEW: Final = 8
"""Up to this many ranks are shown one by one; of more, at most this many groups of ranks that are alike."""


PARTS: Final = tuple(part for part in ALL_PARTS if part not in OWN)
"""Those of a table alone, where `compute` is all of a rank's own time."""


@dataclass(frozen=True, eq=False)
class Anatomy:
    """Stretches of steps, and for each of `ALL_PARTS` its mean per step: [stretches, ranks] in ms, NaN = not known.

    `split` says whether it is known what of the own time a rank sleeps; if not, `compute` holds that as well.

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
    split: bool = False

    def __len__(self) -> int:
        """Number of stretches."""
        return len(self.first)


def anatomy(steps: StepTable, cube: Cube | None = None, stretches: int = STRETCHES) -> Anatomy:
    """The judged steps in a bounded number of stretches of equal length; `cube` splits the ranks' own time."""
    steps = steps.take(steps.judged)
    ranks, who = np.unique(steps.rank, return_inverse=True)
    numbers, begin, sizes = np.unique(steps.step, return_index=True, return_counts=True)
    count = min(stretches, len(numbers))
    of_step = np.arange(len(numbers)) * count // max(1, len(numbers))
    of_row = np.repeat(of_step, sizes)
    shape = (count, len(ranks))
    parts = {name: getattr(steps, f"{name}_ms") for name in PARTS} if cube is None else _of_rows(steps, cube)
    table = {
        name: _means(parts[name], of_row, who, shape) if name in parts else np.full(shape, np.nan)
        for name in ALL_PARTS
    }
    wall = np.fmax.reduceat(steps.wall_ms, begin) if len(steps) else np.empty(0)
    edges = np.searchsorted(of_step, np.arange(count))
    middle, worst, worst_step = np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, np.int64)
    for place, (low, high) in enumerate(zip(edges, [*edges[1:], len(numbers)][:count], strict=True)):
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
        cube is not None and cube.split,
    )


def alike(found: Anatomy, apart: Collection[int]) -> list[tuple[int, ...]]:
    """Ranks by the places of those whose whole run is alike, in order; all are single where there are few of them.

    Args:
        apart: ranks that are never put together with others.
    """
    places = range(len(found.ranks))
    if len(found.ranks) <= FEW:
        return [(place,) for place in places]
    means = np.stack(
        [np.nan_to_num(np.nanmean(np.nan_to_num(each), axis=0)) for each in found.parts.values()]
    )
    near = MATTERS_SHARE * float(means.sum(axis=0).mean())
    groups: dict[int, list[int]] = {}
    single = [place for place in places if found.ranks[place] in apart][:FEW]
    for place in places:
        heads = [head for head in groups if head not in single]
        far = np.abs(means[:, heads] - means[:, [place]]).max(axis=0) if heads and place not in single else []
        nearest = int(np.argmin(far)) if len(far) else -1
        if nearest >= 0 and (far[nearest] <= near or len(heads) >= FEW):
            groups[heads[nearest]].append(place)
        else:
            groups[place] = [place]
    return [tuple(group) for group in groups.values()]


def _of_rows(steps: StepTable, cube: Cube) -> dict[str, Float64]:
    """The parts of each row of a table; NaN: the cube does not have it."""
    known = np.isin(steps.step, cube.step) & np.isin(steps.rank, cube.ranks)
    at = np.searchsorted(cube.step, steps.step[known]), np.searchsorted(cube.ranks, steps.rank[known])
    found = {}
    for part, values in cube.ms.items():
        found[part] = np.full(len(steps), np.nan)
        found[part][known] = values[at]
    return found


def _means(values: Float64, rows: Int64, columns: Int64, shape: tuple[int, int]) -> Float64:
    """The mean of what is known in each cell; NaN where nothing is."""
    known = np.isfinite(values)
    at = rows[known] * shape[1] + columns[known]
    total = np.bincount(at, values[known], minlength=shape[0] * shape[1])
    count = np.bincount(at, minlength=shape[0] * shape[1])
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return np.asarray(mean.reshape(shape))


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
