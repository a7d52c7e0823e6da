"""Sittings: each is a new set of processes that measures all cases, as sets differ in speed by chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pyddpdiag.bench.engine.plan import SweepPlan
from pyddpdiag.ranks.session import Session

_LEAST_ROUNDS: Final = 3
"""Of a launch: its median must be worth something."""
_STARTING: Final = 0.25
"""Of a budget: no more than this part of it goes into starting further launches."""
# The first one also completes the traces, and decides which cases fit into the budget.
_FIRST: Final = 2.0
# After the last round: leave the group, end the processes, analyse, write.
_END_S: Final = 1.5
_END_PER_CASE_S: Final = 0.04


@dataclass(frozen=True)
class Remaining:
    """What is left of a plan: all of it, or what a resumed sweep has not measured yet.

    Attributes:
        cases: their places in the plan.
        rounds: of each of them; None: as many as fit into the budget.
        launches: how many are still to come.
    """

    cases: tuple[int, ...]
    rounds: int | None
    launches: int


@dataclass(frozen=True)
class Launch:
    """One set of processes and what it is to measure.

    Attributes:
        number: from 0, in this command. The first one completes the traces.
        following: how many are planned after it.
        cases: places in the plan.
        rounds: of each case, at most; None: as many as fit into the budget.
        began: when its ranks were started, in seconds since 1970.
        folder: for its traces.
        launched: the ranks' processes were started for this launch alone.
    """

    number: int
    following: int
    cases: tuple[int, ...]
    rounds: int | None
    began: float
    folder: str
    launched: bool

    @property
    def first(self) -> bool:
        """Whether it is the first one."""
        return self.number == 0


def run_launch(plan: SweepPlan, launch: Launch, session: Session) -> None:
    """A job, once plan and launch are bound to it; see `rank.run_launch`. The process that holds it has no torch."""
    from pyddpdiag.bench.engine import rank

    rank.run_launch(plan, launch, session)


def rounds_of_launches(remaining: Remaining) -> list[int | None]:
    """The rounds of each launch; they add up to those that remain. Fewer launches if they would be too short."""
    if remaining.rounds is None:
        return [None] * remaining.launches
    count = min(remaining.launches, max(1, remaining.rounds // _LEAST_ROUNDS))
    whole, more = divmod(remaining.rounds, count)
    return [whole + (place < more) for place in range(count)]


def left_s(plan: SweepPlan, now: float) -> float:
    """Seconds of the budget left for starting and measuring; infinite without a budget."""
    if plan.budget is None:
        return math.inf
    end = plan.budget.started + plan.budget.seconds
    return end - _END_S - _END_PER_CASE_S * len(plan.cases) - now


def has_room(plan: SweepPlan, now: float, start_s: float) -> bool:
    """Whether another launch would still measure something, if its ranks take about `start_s` to start."""
    return left_s(plan, now) > 1.5 * start_s + _END_S


def share(plan: SweepPlan, launch: Launch, now: float) -> tuple[float, int]:
    """Until when a launch may measure whose ranks have just started, and how many launches will follow.

    Seconds since 1970, infinite without a budget.
    """
    left = left_s(plan, now)
    if math.isinf(left):
        return math.inf, launch.following
    start_s = now - launch.began
    follow = max(0, min(launch.following, int(_STARTING * left / (start_s + _END_S))))
    mine = _FIRST if launch.first else 1.0
    return now + (left - follow * (start_s + _END_S)) * mine / (mine + follow), follow
