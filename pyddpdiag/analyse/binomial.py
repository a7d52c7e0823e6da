"""Binomial coefficients of numbers as large as those of a long run's steps."""

from __future__ import annotations

from math import lgamma


def log_choose(of: int, some: int) -> float:
    """The natural logarithm of the number of ways to choose `some` `of` so many; 0 <= `some` <= `of`."""
    return lgamma(of + 1) - lgamma(some + 1) - lgamma(of - some + 1)
