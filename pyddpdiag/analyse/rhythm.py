"""Whether something happens at regular intervals."""

from __future__ import annotations

from math import comb
from typing import Final

import numpy as np
import numpy.typing as npt

EQUAL_SHARE: Final = 0.8
"""This share of the gaps must be equal, give or take a step."""


def period(steps: npt.NDArray[np.int64]) -> float | None:
    """The number of steps between two, if all are equally far apart; None otherwise, or for too few."""
    gaps = np.diff(steps)
    if len(gaps) < 2:
        return None
    middle = float(np.median(gaps))
    # In neighbouring steps it is one stretch, and no rhythm.
    if middle < 2:
        return None
    return middle if np.mean(np.abs(gaps - middle) <= 1) >= EQUAL_SHARE else None


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
    return float(
        sum(
            comb(len(gaps) - 1, k) * one**k * (1 - one) ** (len(gaps) - 1 - k)
            for k in range(equal - 1, len(gaps))
        )
    )


def chance_of_equal(steps: npt.NDArray[np.int64]) -> float:
    """The probability that events that happen at random, as often as these, are all equally far apart; 1: they are not.

    As above, but each gap equals the median with a third of the probability.
    """
    gaps = np.diff(steps)
    if len(gaps) < 2 or (gaps != gaps[0]).any():
        return 1.0
    return float(min(1.0, 1.0 / np.e / gaps[0]) ** (len(gaps) - 1))
