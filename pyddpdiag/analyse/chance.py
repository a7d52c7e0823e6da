"""What chance does: how often events hit, and whether they come at regular intervals."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import NEARLY_ALL
from pyddpdiag.analyse.grouped import Float64


def log_choose(of: int, some: int) -> float:
    """The natural logarithm of the number of ways to choose `some` `of` so many; 0 <= `some` <= `of`."""
    return lgamma(of + 1) - lgamma(some + 1) - lgamma(of - some + 1)


def at_least(some: int, of: int, share: float) -> float:
    """The probability of at least `some` hits in so many tries, of which each hits with the probability `share`.

    1 for no more than are to be expected. By the ratio of neighbouring terms, largest first.
    """
    if some <= of * share:
        return 1.0
    term, total = 1.0, 0.0
    for hits in range(some, of + 1):
        total += term
        term *= (of - hits) / (hits + 1) * share / (1.0 - share)
        if term < 1e-9 * total:
            break
    first = log_choose(of, some) + some * log(share) + (of - some) * log1p(-share)
    return exp(min(0.0, first + log(total)))


def period(steps: npt.NDArray[np.int64]) -> float | None:
    """The number of steps between two, if all are equally far apart; None otherwise, or for too few."""
    gaps = np.diff(steps)
    if len(gaps) < 2:
        return None
    middle = float(np.median(gaps))
    # In neighbouring steps it is one stretch, and no rhythm.
    if middle < 2:
        return None
    return middle if np.mean(np.abs(gaps - middle) <= 1) >= NEARLY_ALL else None


def chance(steps: npt.NDArray[np.int64]) -> float:
    """The probability that events that happen at random, as often as these, look so regular.

    Gaps between random events are spread geometrically: one is within a step of the median with a probability
    of about 3/e divided by the median, or surely if the median is small.
    """
    gaps = np.diff(steps)
    if len(gaps) < 2:
        return 1.0
    middle = float(np.median(gaps))
    one = min(1.0, 3.0 / np.e / middle)
    equal = int(np.count_nonzero(np.abs(gaps - middle) <= 1))
    # One of the gaps is the median itself.
    return at_least(equal - 1, len(gaps) - 1, one)


def chance_alike(lengths: Float64) -> float:
    """The probability that so many lengths at random are so much alike, by the shortest over the longest.

    What is beyond a threshold is spread exponentially: of its order statistics (Renyi, 1953), by the beta function.
    """
    count, more = len(lengths), float(lengths.max() / lengths.min()) - 1.0
    if more <= 0.0:
        return 0.0
    return exp(lgamma(count / more + 1.0) + lgamma(count) - lgamma(count / more + count))
