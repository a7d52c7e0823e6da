"""A rank's memory that grows and does not level off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import BLOCKS, WORTH_A_WORD, Z99
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.memory import Memory

_BEGINS: Final = (0.0, 0.25, 0.5)


@dataclass(frozen=True)
class Growth:
    """Bytes, and nanoseconds of the rank's clock.

    `since_ns` is from when on it was seen to grow, `per_ns` how fast of late, `workers` the share that its workers have
    of it, `taken` what it takes in the end, `free` what is left then, of `limit`, which may be a `container`'s.
    `steady`: nothing shows that it grows more slowly than before.
    """

    since_ns: int
    from_begin: bool
    per_ns: float
    workers: float
    taken: int
    free: int
    limit: int
    container: bool
    steady: bool


def growth(memory: Memory) -> Growth | None:
    """How a rank's memory grows; None: it does not, too little was seen, or it levels off before the memory is full."""
    at = np.array(memory.at_ns, np.float64)
    if len(at) < 2 * BLOCKS or at[-1] <= at[0]:
        return None
    own, workers = np.array(memory.own, np.float64), np.array(memory.workers, np.float64)
    for begin in _BEGINS:
        since = at[0] + begin * (at[-1] - at[0])
        levels = _levels(at, own + workers, since)
        if levels is None or not (np.diff(levels) > 0).all():
            continue
        free = memory.free[-1]
        if levels[-1] - levels[0] < WORTH_A_WORD * free:
            return None
        unsure = _unsure(levels)
        steady, further = _goes_on(levels, unsure)
        if further < free:
            return None
        of_workers = _levels(at, workers, since)
        grown = 0.0 if of_workers is None else of_workers[-1] - of_workers[0]
        half = BLOCKS // 2
        width = (at[-1] - since) / BLOCKS
        still = int(np.argmax(levels - levels[0] > unsure)) - 1
        return Growth(
            int(since + still * width),
            begin == still == 0,
            float((levels[-1] - levels[half]) / ((half - 1) * width)),
            float(np.clip(grown / (levels[-1] - levels[0]), 0.0, 1.0)),
            memory.own[-1] + memory.workers[-1],
            free,
            memory.limit,
            memory.container,
            steady,
        )
    return None


def _levels(at: Float64, values: Float64, since: float) -> Float64 | None:
    """The medians of the blocks; None: one has no reading."""
    edges = np.linspace(since, at[-1], BLOCKS + 1)
    block = np.clip(np.searchsorted(edges, at, "right") - 1, -1, BLOCKS - 1)
    parts = [values[block == number] for number in range(BLOCKS)]
    return np.array([np.median(part) for part in parts]) if all(map(len, parts)) else None


def _unsure(levels: Float64) -> float:
    """How much two levels may differ by chance.

    The noise of a level comes from second differences, as a smooth curve has next to none of them (Gasser, Sroka and
    Jennen-Steinmetz, Biometrika 1986).
    """
    return float(Z99 * np.sqrt(2.0 * (np.diff(levels, 2) ** 2).mean() / 6.0))


def _goes_on(levels: Float64, unsure: float) -> tuple[bool, float]:
    """Whether nothing shows that it slows down, and how much further it will grow if each half of the time adds as much
    less than the one before as the second half did: the sum of a geometric series.
    """
    half = BLOCKS // 2
    first, second = levels[half - 1] - levels[0], levels[-1] - levels[half]
    ratio = (second + unsure) / max(first - unsure, 1.0)
    if ratio >= 1.0:
        return True, float("inf")
    return False, float((second + unsure) * half / (half - 1) * ratio / (1.0 - ratio))
