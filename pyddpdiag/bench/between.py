"""Compares runs of separate processes: the interval is over sets of processes, not over rounds.

One set of processes is faster than the next because of its memory addresses, its cores and other load. The
rounds of one set cannot show by how much. So a run measures its cases in several sets (launches) in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from pyddpdiag.bench.intervals import Estimate, Values, ratio_of_rounds

Launches = Sequence[Sequence[float]]


def typical(launches: Launches) -> float:
    """Geometric mean of the launches' medians: of a single one, its median."""
    return math.exp(float(np.mean(_logarithms(launches))))


def ratio_of_runs(values: Launches, base: Launches) -> Estimate:
    """`typical` of the one run over that of the other, with a 95% interval.

    The logarithms of the launches' medians are compared by Welch's t interval. If one of the runs has a single launch,
    it is assumed to scatter like the other's. If both have, the scatter of launches is unknown, and the
    interval is that of the rounds alone: too narrow.

    Args:
        values, base: seconds of each round, by launch.
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
    (Abramowitz and Stegun, 26.7). The angle is found by halving its range.

    Args:
        probability: above 0.5 and below 1.
        freedom: at least 1; need not be whole, as in Welch's test.

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
