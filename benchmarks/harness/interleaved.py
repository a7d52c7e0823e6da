"""Variants measured side by side: in each round every variant once, in random order, so that noise hits all alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A median over rounds and its 95% interval (percentile bootstrap over the rounds)."""

    median: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        return {"median": self.median, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        return f"{self.median:.4g} [{self.low:.4g}, {self.high:.4g}]"


def interleave(
    variants: Mapping[str, Callable[[], float]], rounds: int, seed: int = 0
) -> dict[str, list[float]]:
    """What each variant returned (its own measure of time) in each round."""
    order = random.Random(seed)
    measured: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name in order.sample(list(variants), len(variants)):
            measured[name].append(variants[name]())
    return measured


def estimate(values: list[float]) -> Estimate:
    """Median of the rounds with its interval."""
    data = np.asarray(values)
    picks = np.random.default_rng(0).integers(0, len(data), (RESAMPLES, len(data)))
    low, high = np.percentile(np.median(data[picks], axis=1), [2.5, 97.5])
    return Estimate(float(np.median(data)), float(low), float(high))


def difference(measured: Mapping[str, list[float]], name: str, base: str) -> Estimate:
    """Median of the differences round by round: what drifts over the run cancels out."""
    return estimate([a - b for a, b in zip(measured[name], measured[base], strict=True)])


def ratio(measured: Mapping[str, list[float]], name: str, base: str) -> Estimate:
    """Median of the ratios round by round."""
    return estimate([a / b for a, b in zip(measured[name], measured[base], strict=True)])
