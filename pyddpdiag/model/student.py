"""Quantiles of Student's t distribution, for any number of degrees of freedom."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np

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
