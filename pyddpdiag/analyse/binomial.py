"""Binomial coefficients and probabilities of numbers as large as those of a long run's steps."""

from __future__ import annotations

from math import exp, lgamma, log, log1p


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
