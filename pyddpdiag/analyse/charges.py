"""Each millisecond of the judged steps is charged once: to a rank, to all of them, or to what moves between them.

What a typical rank needs itself, all of them need. What the rank that all wait for needs beyond that is charged to it,
in the parts in which it needs more, and so is what the others wait for it or do meanwhile. So the charges of a row add
up to the step and the time before it, as these are on average over the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.grouped import Float32, Float64
from pyddpdiag.analyse.step_matrix import StepMatrix
from pyddpdiag.model.cube import CHARGED, NEEDED, Cube
from pyddpdiag.trace.rows import CHUNK, Int64


@dataclass(frozen=True, eq=False)
class Charges:
    """[rows, parts, who] in ms, for the parts `CHARGED`; who: all ranks, and after that each of `ranks`.

    A row is what lies between two meetings of all ranks; it has the number of the `step` that ends it.
    """

    ranks: tuple[int, ...]
    step: Int64
    ms: Float32

    def who(self, rank: int | None) -> list[int]:
        """The places of a rank that is charged; None: of everybody, and so it is where there is only one."""
        if rank is None or len(self.ranks) < 2:
            return list(range(1 + len(self.ranks)))
        return [1 + self.ranks.index(rank)] if rank in self.ranks else []


def charges(
    cube: Cube, before: Mapping[str, Float32], steps: StepMatrix, judged: Int64, *, earliest: bool = False
) -> Charges:
    """Who and what the judged steps' time went to.

    Args:
        cube: the parts of the ranks' steps.
        before: what lies before each of these (`before_steps`).
        steps: those in which all ranks meet.
        judged: the numbers of all judged steps; those in which the ranks do not meet go to the next in which they do.
        earliest: most ranks are late: what the earliest one needs is what all need, and not the lower median.
    """
    ranks = steps.ranks
    inside = np.isin(cube.step, judged) & (cube.step <= (steps.step[-1] if len(steps.step) else -1))
    row = np.searchsorted(steps.step, cube.step[inside])
    begin = np.flatnonzero(np.diff(row, prepend=-1))
    found = np.zeros((len(begin), len(CHARGED), 1 + len(ranks)), np.float32)
    if not len(begin):
        return Charges(ranks, steps.step[:0], found)
    table = {**cube.ms, **before}
    columns = np.array([cube.ranks.index(rank) for rank in ranks])
    at = np.flatnonzero(inside)
    edges = np.append(begin, len(at))
    size = max(1, CHUNK // (len(CHARGED) * len(ranks)))
    middle = 0 if earliest else (len(ranks) - 1) // 2
    for first in range(0, len(begin), size):
        part = slice(first, min(first + size, len(begin)))
        taken, starts = at[edges[part.start] : edges[part.stop]], edges[part] - edges[part.start]

        def of(name: str, taken: Int64 = taken, starts: Int64 = starts) -> Float64:
            values = np.nan_to_num(table[name][np.ix_(taken, columns)].astype(np.float64))
            return np.asarray(np.add.reduceat(values, starts, axis=0))

        own, waits = np.stack([of(name) for name in NEEDED]), [of("late"), of("other") + of("calls_between")]
        found[part] = _charged(own, waits, of("communication"), middle)
    return Charges(ranks, steps.step[row[begin]], found)


def _charged(own: Float64, waits: Sequence[Float64], moving: Float64, middle: int) -> Float64:
    """Of some rows; `own`: [parts, rows, ranks], the others [rows, ranks]; `middle`: the typical rank's place."""
    parts, rows, ranks = own.shape
    at = np.arange(rows)
    total = own.sum(axis=0)
    typical = np.argsort(total, axis=1, kind="stable")[:, middle]
    more = np.maximum(own - own[:, at, typical, None], 0.0)
    beyond = np.maximum(total - total[at, typical, None], 0.0)
    alone = more * np.divide(beyond, more.sum(axis=0), out=np.zeros_like(beyond), where=beyond > 0.0)
    late, calls = waits
    least = calls.min(axis=1)
    # Of several that wait equally little, the others waited for the one that needed most.
    culprits = [np.where(each > each.min(axis=1)[:, None], -1.0, total).argmax(axis=1) for each in waits]
    # A rank that needs more than usual while the others wait for one that needs most costs nobody anything.
    hidden = beyond.copy()
    for culprit in culprits:
        hidden[at, culprit] = 0.0
    found = np.zeros((rows, len(CHARGED), 1 + ranks))
    found[:, :parts, 0] = (own - alone).mean(axis=2).T
    found[:, :parts, 1:] = (alone * (hidden == 0.0)).transpose(1, 0, 2) / ranks
    found[:, CHARGED.index("other"), 0] = least
    found[:, CHARGED.index("communication"), 0] = moving.mean(axis=1)
    for culprit, waited in zip(culprits, (late + hidden, calls - least[:, None]), strict=True):
        weights = more[:, at, culprit]
        weights = np.where(weights.sum(axis=0) > 0.0, weights, own[:, at, culprit])
        whole = weights.sum(axis=0)
        shares = np.where(whole > 0.0, weights / np.where(whole > 0.0, whole, 1.0), 1.0 / parts)
        found[at, :parts, 1 + culprit] += (shares * waited.mean(axis=1)).T
    return found
