"""Whether something happens at regular intervals."""

from __future__ import annotations

from math import exp, lgamma

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.binomial import at_least
from pyddpdiag.analyse.bounds import NEARLY_ALL
from pyddpdiag.analyse.grouped import Float64


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

    Args:
        lengths: all above 0; any unit.
    """
    count, more = len(lengths), float(lengths.max() / lengths.min()) - 1.0
    if more <= 0.0:
        return 0.0
    return exp(lgamma(count / more + 1.0) + lgamma(count) - lgamma(count / more + count))
