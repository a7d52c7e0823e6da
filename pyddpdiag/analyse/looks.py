"""Statistics of looks: which part of them saw something, from when to when, and whether it takes longer in one sample
than in another, beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p, sqrt
from statistics import NormalDist

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


@dataclass(frozen=True)
class Sample:
    """The time at a place, step by step, as looks tell it.

    `ms`: of each step of each rank, 0 without a look. `look_ms`: for what one look stands.
    """

    ms: Float64
    look_ms: float

    @property
    def mean_ms(self) -> float:
        """Per step; 0 without any."""
        return float(self.ms.mean()) if len(self.ms) else 0.0

    @property
    def variance(self) -> float:
        """Of the mean, in ms^2.

        Looks at random moments are a Poisson process, and the variance of a count is the count. One look more is
        counted: a place that no look met may be one that the next would meet (as Agresti and Caffo do for proportions,
        The American Statistician 54, 2000). But all looks of a step may have met one and the same wait: where the steps
        differ by more than that, theirs is the variance (Cochran, Sampling Techniques, 1977, chapter 9).
        """
        steps = len(self.ms)
        if not steps:
            return 0.0
        of_looks = (float(self.ms.sum()) + self.look_ms) * self.look_ms / steps**2
        return max(of_looks, float(self.ms.var(ddof=1)) / steps) if steps > 1 else of_looks

    def exceeds(self, other: Sample, times: float, compared: int) -> bool:
        """Whether its mean is larger than so many times the other's: a test of two rates, by the normal approximation
        (Krishnamoorthy and Thomson, Journal of Statistical Planning and Inference 119, 2004).

        Args:
            times: how many times as long it may take.
            compared: among how many such differences this is the largest (Bonferroni).
        """
        sure = NormalDist().inv_cdf(1 - CHANCE / max(1, compared))
        spread = sqrt(self.variance + times**2 * other.variance)
        return self.mean_ms - times * other.mean_ms > sure * spread


def joined(samples: Sequence[Sample]) -> Sample:
    """The steps of all of these."""
    return Sample(np.concatenate([each.ms for each in samples]), max(each.look_ms for each in samples))
