"""Variants that are measured by turns, and how they are compared round by round."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from pyddpdiag.bench.intervals import Estimate, estimate, shuffled


def interleave(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each variant returned (its own measure of time) in each round; every round has its own order."""
    order = random.Random(0)
    measured: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name in shuffled(list(variants), order):
            measured[name].append(variants[name]())
    return measured


def difference(measured: Mapping[str, Sequence[float]], name: str, base: str) -> Estimate:
    """Median of the differences round by round: what drifts over the run cancels out."""
    return estimate([a - b for a, b in zip(measured[name], measured[base], strict=True)])


def ratio(measured: Mapping[str, Sequence[float]], name: str, base: str) -> Estimate:
    """Median of the ratios round by round."""
    return estimate([a / b for a, b in zip(measured[name], measured[base], strict=True)])
