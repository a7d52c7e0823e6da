"""Medians over rounds and their intervals: how all benchmarks here distinguish a difference from noise."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

RESAMPLES: Final = 2000
MARGIN: Final = 0.05
"""Two medians of separate runs that differ by less than this are not called different, however sure it is."""
ALIKE: Final = 1.2
"""No difference is said only where one of this factor, which a user would want to know about, can be ruled out."""

FEWEST: Final = 5
"""Rounds: with fewer, nothing follows."""

TOO_FEW: Final = "too few rounds"
WIDE: Final = "wide interval"

Word = Literal["faster", "slower", "no difference", "cannot tell"]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A median over rounds and its 95% interval (percentile bootstrap over the rounds)."""

    median: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """The three numbers by name."""
        return {"median": self.median, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        return f"{self.median:.4g} [{self.low:.4g}, {self.high:.4g}]"


def shuffled(names: Sequence[str], order: random.Random) -> list[str]:
    """The names in a new random order."""
    return order.sample(list(names), len(names))


def estimate(values: Sequence[float]) -> Estimate:
    """Median of the rounds with its interval.

    Raises:
        ValueError: there are no rounds.
    """
    if not len(values):
        raise ValueError("no rounds, so no median")
    data = np.asarray(values, np.float64)
    picks = np.random.default_rng(0).integers(0, len(data), (RESAMPLES, len(data)))
    return _interval(float(np.median(data)), np.median(data[picks], axis=1))


def ratio_in_pairs(values: Sequence[float], base: Sequence[float], level: float = 0.95) -> Estimate:
    """Median of the ratios round by round, by blocks of neighbouring rounds, with an interval of that level.

    What drifts slowly cancels out within a pair. What does not cancel out makes neighbours alike, hence the blocks.

    Raises:
        ValueError: there are no rounds.
    """
    ratios = np.asarray(values, np.float64) / np.asarray(base, np.float64)
    if not len(ratios):
        raise ValueError("no rounds, so no ratio")
    resampled = np.median(_blocks(ratios, np.random.default_rng(0)), axis=1)
    return _interval(float(np.median(ratios)), resampled, level)


def ratio_of_rounds(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Median of `values` over median of `base`, each measured by one set of processes of its own.

    Their rounds are not pairs. Rounds that are close in time resemble each other, which would make a plain bootstrap
    too sure, so whole blocks of neighbouring rounds are drawn (circular block bootstrap, blocks of sqrt(n)). The rounds
    of one set cannot tell how much one set of processes differs from the next: see `ratio_of_runs`.

    Raises:
        ValueError: one side has no rounds.
    """
    return _of_medians(np.divide, values, base)


def difference_of_rounds(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Median of `values` minus median of `base`, each of a set of processes of its own; as `ratio_of_rounds`.

    Raises:
        ValueError: one side has no rounds.
    """
    return _of_medians(np.subtract, values, base)


def verdict(ratio_of_times: Estimate, rounds: int, margin: float = MARGIN) -> Word:
    """What a ratio of times says of the one on top.

    `rounds`: the fewest rounds of the two; below FEWEST nothing follows. `margin`: only an interval that lies outside
    of 1 by this much as a whole is a difference. There is none only if the whole interval lies within ALIKE, or
    within the margin if that is larger.
    """
    if rounds < FEWEST:
        return "cannot tell"
    if ratio_of_times.high < 1 / (1 + margin):
        return "faster"
    if ratio_of_times.low > 1 + margin:
        return "slower"
    alike = max(ALIKE, 1 + margin)
    return (
        "no difference" if 1 / alike < ratio_of_times.low and ratio_of_times.high < alike else "cannot tell"
    )


def why_not(word: Word, rounds: int) -> str:
    """Why `verdict` cannot tell; empty if it can."""
    if word != "cannot tell":
        return ""
    return TOO_FEW if rounds < FEWEST else WIDE


def _of_medians(compare: np.ufunc, values: Sequence[float], base: Sequence[float]) -> Estimate:
    """The medians of two sets of rounds that are not pairs, compared."""
    a, b = np.asarray(values, np.float64), np.asarray(base, np.float64)
    if not len(a) or not len(b):
        raise ValueError("no rounds, so nothing to compare")
    generator = np.random.default_rng(0)
    resampled = compare(np.median(_blocks(a, generator), axis=1), np.median(_blocks(b, generator), axis=1))
    return _interval(float(compare(np.median(a), np.median(b))), resampled)


def _blocks(data: Values, generator: np.random.Generator) -> Values:
    """Resamples of `data`, shape (RESAMPLES, len(data)), drawn as blocks of neighbours."""
    n = len(data)
    length = max(1, round(n**0.5))
    count = -(-n // length)
    starts = generator.integers(0, n, (RESAMPLES, count, 1))
    picks = (starts + np.arange(length)) % n
    return data[picks.reshape(RESAMPLES, -1)[:, :n]]


def _interval(median: float, resampled: Values, level: float = 0.95) -> Estimate:
    outside = 50 * (1 - level)
    low, high = np.percentile(resampled, [outside, 100 - outside])
    return Estimate(median, float(low), float(high))


Launches = Sequence[Sequence[float]]


def typical(launches: Launches) -> float:
    """Geometric mean of the launches' medians: of a single one, its median."""
    return math.exp(float(np.mean(_logarithms(launches))))


def ratio_of_runs(values: Launches, base: Launches) -> Estimate:
    """`typical` of the one run over that of the other, with a 95% interval.

    The logarithms of the launches' medians are compared by Welch's t interval. If one of the runs has a single
    launch, it is assumed to scatter like the other's. If both have, the scatter of launches is unknown, and the
    interval is that of the rounds alone: too narrow. `values`, `base`: seconds of each round, by launch.
    """
    a, b = _logarithms(values), _logarithms(base)
    middle = math.exp(float(a.mean() - b.mean()))
    if len(a) < 2 and len(b) < 2:
        return ratio_of_rounds(values[0], base[0])
    spreads = [float(x.var(ddof=1)) for x in (a, b) if len(x) > 1]
    first, second = spreads if len(spreads) == 2 else spreads * 2
    of_a, of_b = first / len(a), second / len(b)
    if of_a + of_b == 0:
        return Estimate(middle, middle, middle)
    if len(spreads) == 2:
        freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    else:
        freedom = max(len(a), len(b)) - 1
    half = t_quantile(0.975, freedom) * math.sqrt(of_a + of_b)
    # A spread from which nothing follows: finite, so that it can be written to JSON.
    half = min(half, 100.0)
    return Estimate(middle, middle * math.exp(-half), middle * math.exp(half))


def _logarithms(launches: Launches) -> Values:
    if not launches or not all(len(rounds) for rounds in launches):
        raise ValueError("no rounds, so no ratio")
    return np.log([float(np.median(rounds)) for rounds in launches])


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_HALVINGS: Final = 60
_MOST_FREEDOM: Final = 1e5
"""Here t differs from the normal distribution by 1e-5, and the functions below still have ten digits."""


@cache
def t_quantile(probability: float, freedom: float) -> float:
    """The value that a t variable stays below with this probability.

    With t = sqrt(freedom) tan(a), the density becomes a power of the cosine, which is smooth on a finite range: its
    integral from 0 to a, times gamma((n+1)/2) / (sqrt(pi) gamma(n/2)), is the probability of values between 0 and t
    (Abramowitz and Stegun, 26.7). The angle is found by halving its range. `probability`: above 0.5 and below 1.
    `freedom`: at least 1; need not be whole, as in Welch's test.

    Raises:
        ValueError: an argument is out of its range.
    """
    if not 0.5 < probability < 1 or not freedom >= 1:
        raise ValueError(f"no quantile of t for {probability} and {freedom} degrees of freedom")
    freedom = min(freedom, _MOST_FREEDOM)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        at = angle * (_NODES + 1) / 2
        inside = scale * angle / 2 * float(_WEIGHTS @ np.cos(at) ** (freedom - 1))
        if inside < probability - 0.5:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan((low + high) / 2)
