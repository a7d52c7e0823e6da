"""Which part of the looks at ranks saw something, between which bounds, and from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p, sqrt

import numpy as np

from pyddpdiag.analyse.bounds import CHANCE, Z99
from pyddpdiag.analyse.grouped import Float64


@dataclass(frozen=True)
class Seen:
    """A part of some looks, 0 to 1, its bounds of 99% confidence each, and the number of looks that saw it."""

    share: float
    at_least: float
    at_most: float
    samples: int


def seen(there: Float64, looks: Float64, came: float = 1.0) -> Seen:
    """Wilson's interval (1927) with Newcombe's correction for continuity (1998), which comes close to the exact one.

    It counts with as many independent looks as have the same variance, as Korn and Graubard (1998) do.

    Args:
        there: how many looks of each step saw it.
        looks: how many looks there were in each step. Those of one step see the same.
        came: the part of the looks that came when they were due; the others may have seen anything.
    """
    whole, some = float(looks.sum()), float(there.sum())
    if not whole:
        return Seen(0.0, 0.0, 1.0, 0)
    share, independent = some / whole, whole / _effect(there, looks)
    once = 1 / independent
    low, high = (
        share + once * Z99**2 / 2 + sign * once * (0.5 + Z99 / 2 * sqrt(max(0.0, under)))
        for sign, under in (
            (-1, Z99**2 - 2 - once + 4 * share * (independent * (1 - share) + 1)),
            (1, Z99**2 + 2 - once + 4 * share * (independent * (1 - share) - 1)),
        )
    )
    scale = 1 + once * Z99**2
    # The formula says so only of many looks.
    at_least = max(0.0, low / scale) if some else 0.0
    at_most = min(1.0, high / scale) if some < whole else 1.0
    return Seen(came * share, came * at_least, came * at_most + 1 - came, int(some))


def between(there: Float64, looks: Float64) -> tuple[int, int]:
    """The steps in which something happened: the first, and the one after the last. Arguments as for `seen`.

    It began where it was seen first, if so many looks before that would all have missed it with a probability of 1% at
    most; it ended likewise. The looks at the edges themselves are left out, as they were chosen for what they saw.
    """
    at = np.flatnonzero(there)
    first, last = int(at[0]), int(at[-1])
    inside = slice(first, last + 1)
    share = float(there[inside].sum() / looks[inside].sum())
    least = _effect(there[inside], looks[inside]) * (log(CHANCE) / log1p(-share) if share < 1.0 else 1.0)
    begin = first + 1 if float(looks[:first].sum()) >= least else 0
    end = last if float(looks[last + 1 :].sum()) >= least else len(looks)
    return (begin, end) if begin < end else (0, len(looks))


def _effect(there: Float64, looks: Float64) -> float:
    """By what factor the variance of the share exceeds that of as many independent looks, at least 1."""
    whole, steps = float(looks.sum()), int(np.count_nonzero(looks))
    if steps < 2:
        return max(1.0, whole)
    share = float(there.sum()) / whole
    if not 0.0 < share < 1.0:
        return 1.0
    squares = float(((there - share * looks) ** 2).sum())
    return max(1.0, squares * steps / (steps - 1) / (whole * share * (1 - share)))
