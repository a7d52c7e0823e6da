"""Ratios of pairs with their intervals, from few rounds: what is the same in a round cancels out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyddpdiag.model.student import t_quantile

MARGIN: Final = 0.02
"""The best is known when another choice could save no more than this part of today's step."""


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
    half = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
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
