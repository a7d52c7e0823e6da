"""Sittings: all cases in one set of processes after the other, as one set is faster than the next by chance."""

from __future__ import annotations

import math
from typing import Final

from pyddpdiag.bench.engine.settings import SweepSettings

_LEAST_ROUNDS: Final = 3
"""Of a sitting: its median must be worth something."""
_STARTING: Final = 0.25
"""Of a budget: no more than this part of it goes into starting further sittings."""
# The first one completes the traces as well, and decides which cases the budget has room for.
_FIRST: Final = 2.0
# What is left to do when the last round is over: leave the group, end the processes, analyse, write.
_END_S: Final = 1.5
_END_PER_CASE_S: Final = 0.04


def rounds_of_sittings(settings: SweepSettings) -> list[int]:
    """The rounds of each sitting, which add up to `settings.rounds`; fewer sittings where they would be too short."""
    count = min(settings.sittings, max(1, settings.rounds // _LEAST_ROUNDS))
    whole, more = divmod(settings.rounds, count)
    return [whole + (place < more) for place in range(count)]


def left_s(settings: SweepSettings, now: float) -> float:
    """Seconds of the budget that are left for starting and measuring; infinite without a budget."""
    if settings.budget_s is None:
        return math.inf
    return settings.started + settings.budget_s - _END_S - _END_PER_CASE_S * len(settings.cases) - now


def has_room(settings: SweepSettings, now: float, start_s: float) -> bool:
    """Whether another sitting, whose ranks take about `start_s` to start, would still measure something."""
    return left_s(settings, now) > 1.5 * start_s + _END_S


def share(settings: SweepSettings, now: float) -> tuple[float, int]:
    """Of a sitting whose ranks have just started: until when it may measure, and how many sittings will follow.

    Seconds since 1970, infinite without a budget.
    """
    wanted = settings.sittings - settings.sitting - 1
    left = left_s(settings, now)
    if math.isinf(left):
        return math.inf, wanted
    start_s = now - settings.began
    follow = max(0, min(wanted, int(_STARTING * left / (start_s + _END_S))))
    mine = _FIRST if settings.sitting == 0 else 1.0
    return now + (left - follow * (start_s + _END_S)) * mine / (mine + follow), follow
