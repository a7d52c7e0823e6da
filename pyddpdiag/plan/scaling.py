"""How far a run scales: its throughput with 1, 2, 4, ... ranks of the same batch each, where that ends, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyddpdiag.plan.settings import Limit, Scaling, ScalingPoint
from pyddpdiag.plan.units import MOST_RANKS

WORTHWHILE: Final = 1.5
"""Beyond the end of scaling, twice the ranks never give so many times the throughput."""

StepMs = Callable[[int, frozenset[Limit]], float]
"""The step in ms of so many ranks, without what these take."""


def scaling(step_ms: StepMs) -> Scaling:
    """All numbers of ranks that are a power of two.

    Throughput counts samples: a rank has the same batch, however many there are. It is relative to a rank alone.
    """
    alone = step_ms(1, frozenset())
    points = [ScalingPoint(1, alone, 1.0)]
    # The first doubling may gain less than later ones: a rank alone sends nothing.
    ends_at = 1
    while points[-1].ranks < MOST_RANKS:
        ranks = 2 * points[-1].ranks
        step = step_ms(ranks, frozenset())
        points.append(ScalingPoint(ranks, step, ranks * alone / step))
        if points[-1].throughput >= WORTHWHILE * points[-2].throughput:
            ends_at = ranks
    if ends_at == MOST_RANKS:
        return Scaling(alone, tuple(points))
    beyond = next(point for point in points if point.ranks == 2 * ends_at)
    saved: dict[Limit, float] = {
        each: beyond.step_ms - step_ms(beyond.ranks, frozenset({each}))
        for each in ("latency", "bandwidth", "slowest rank")
    }
    limit = max(saved, key=lambda each: saved[each])
    return Scaling(alone, tuple(points), ends_at, limit, saved[limit])
