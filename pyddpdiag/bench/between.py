"""Compares runs of separate processes: the interval is over sets of processes, not over rounds.

One set of processes is faster than the next because of its memory addresses, its cores and other load. The
rounds of one set cannot show by how much. So a run measures its cases in several sets (launches) in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pyddpdiag.bench.intervals import Estimate, Values, ratio_of_rounds
from pyddpdiag.model.student import t_quantile

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
