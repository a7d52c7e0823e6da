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

LOOKS: Final = (3, 4, 6, 8, 12)
"""After so many rounds a trial may end because the best is known. With fewer looks each has a narrower interval."""
_FALSE_GAIN: Final = 0.05
"""The chance over a whole trial, with all its looks and settings, that one which is worth nothing is called faster."""
_FIRST_LOOK: Final = 1 / 3
"""The part of that chance which the first look may spend. The later ones share the rest; the end of the time is one of
them, because a trial that ends so has not come to its last look."""


@dataclass(frozen=True)
class Interval:
    """A value with its interval."""

    middle: float
    low: float
    high: float


def beyond(rounds: int, settings: int) -> float:
    """The chance that the truth lies above the interval of a look after so many rounds, and as much that it lies
    below.

    With a 95% interval at each look, 7 to 10 of 100 trials of worthless settings called one of them faster. So all
    looks share 5%, spent as the trial goes on (Lan and DeMets: Discrete sequential boundaries for clinical trials,
    Biometrika 70, 1983), and the settings share each part (Bonferroni).

    Args:
        rounds: that have been measured.
        settings: how many are tried beside today's.
    """
    part = _FIRST_LOOK if rounds <= LOOKS[0] else (1 - _FIRST_LOOK) / (len(LOOKS) - 1)
    return _FALSE_GAIN * part / max(1, settings)


def ratio_of_pairs(ratios: Sequence[float], tail: float = 0.025) -> Interval | None:
    """The ratio that pairs of rounds share: their geometric mean, with Student's interval of its logarithm.

    None with fewer than 2 pairs: nothing is known of how much they differ.

    Args:
        ratios: one of each pair.
        tail: the chance that the truth lies above the interval, and as much that it lies below.
    """
    if len(ratios) < 2:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logs)
    half = t_quantile(1 - tail, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
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


__all__ = ["LOOKS", "MARGIN", "Interval", "best_is_known", "beyond", "ratio_of_pairs"]
