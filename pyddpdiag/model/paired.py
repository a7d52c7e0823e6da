"""Ratios of pairs with their intervals, from few rounds: what is the same in a round cancels out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MARGIN: Final = 0.02
"""Of a step: so well the best is to be known."""

# Student's t for a two-sided 95% interval, by degrees of freedom from 1 on.
_T: Final = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
)
_T_MANY: Final = 2.14


@dataclass(frozen=True)
class Interval:
    """A value with its 95% interval."""

    middle: float
    low: float
    high: float


def ratio_of_pairs(ratios: Sequence[float]) -> Interval | None:
    """The ratio that pairs of rounds share: their geometric mean, with Student's interval of its logarithm.

    None with fewer than 2 pairs: nothing is known of how much they differ.
    """
    if len(ratios) < 2:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logs)
    t = _T[len(logs) - 2] if len(logs) - 2 < len(_T) else _T_MANY
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def best_is_known(intervals: Sequence[Interval], margin: float = MARGIN) -> bool:
    """Whether nothing else can be better than the best by more than `margin` of today's step.

    Args:
        intervals: of the ratios to today's step, one for each setting beside it, which stands at 1.
        margin: of today's step.
    """
    if not intervals:
        return True
    best = min(intervals, key=lambda each: each.middle)
    # Today's own setting is one to choose as well.
    high = min(best.high, 1.0)
    return all(each.low >= high - margin for each in intervals if each is not best) and (
        best.high < 1 or best.low >= 1 - margin
    )


__all__ = ["MARGIN", "Interval", "best_is_known", "ratio_of_pairs"]
