"""Medians over rounds and their intervals: how all benchmarks here distinguish a difference from noise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
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
    of one set cannot tell how much one set of processes differs from the next: see `between.ratio_of_runs`.

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

    Args:
        ratio_of_times: with its interval.
        rounds: the fewest rounds of the two; below FEWEST nothing follows.
        margin: only an interval that lies outside of 1 by this much as a whole is a difference. There is none only if
            the whole interval lies within ALIKE, or within the margin if that is larger.
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
