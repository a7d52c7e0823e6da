"""What a sweep measures and how thoroughly, in which launches, and what rank 0 reports of it. Without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pyddpdiag.bench.cases import Case
from pyddpdiag.errors import UsageError
from pyddpdiag.ranks.session import Session

USUAL_ROUNDS: Final = 30
"""Of a sweep without a budget that nobody gave a number for."""


@dataclass(frozen=True)
class Budget:
    """The time that a command may take.

    Attributes:
        seconds: for the whole command.
        started: when the command was started, in seconds since 1970.

    Raises:
        UsageError: it is too short or too long to be kept.
    """

    seconds: float
    started: float

    def __post_init__(self) -> None:
        if not 10 <= self.seconds <= 86_400:
            raise UsageError(
                f"a budget of {self.seconds:g} s cannot be kept.",
                hint="starting ranks takes seconds: 10 s to 24 h.",
            )

    def fraction(self, now: float) -> float:
        """How much of it is used up; may exceed 1."""
        return (now - self.started) / self.seconds


@dataclass(frozen=True)
class SweepPlan:
    """A sweep.

    Attributes:
        cases: the most telling first. Everywhere else, a case is its place in this list.
        names: this machine's interfaces, which the cases pick from.
        rounds: most rounds of each case, over all launches. None: as many as fit into the budget.
        launches: how often the ranks are started to measure all cases, if this process can start them.
        budget: None sets no limit.
        timeout_s: longest wait for the other ranks while a case is set up.
        race: end before the last round, as soon as all entrants can be distinguished; see `race.settled`.

    Raises:
        UsageError: there is no case, no end, or a number is out of its range.
    """

    cases: tuple[Case, ...]
    names: tuple[str, ...] = ()
    rounds: int | None = USUAL_ROUNDS
    launches: int = 1
    budget: Budget | None = None
    timeout_s: float = 60.0
    race: bool = False

    def __post_init__(self) -> None:
        if not self.cases:
            raise UsageError("there is nothing to measure.")
        if self.rounds is None and self.budget is None:
            raise UsageError("a sweep without an end cannot be measured.", hint="give --rounds or --budget.")
        if self.rounds is not None and not 1 <= self.rounds <= 10_000:
            raise UsageError(f"--rounds is {self.rounds}, but it must be from 1 to 10000.")
        if not 1 <= self.launches <= 100:
            raise UsageError(f"--sittings is {self.launches}, but it must be from 1 to 100.")
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise UsageError(f"--timeout is {self.timeout_s}, but it must be a number above 0.")

    @property
    def world_size(self) -> int:
        """Ranks of the largest case."""
        return max(case.world_size for case in self.cases)

    def interface(self, case: int, default: str) -> str:
        """GLOO_SOCKET_IFNAME on this machine in a case: what the case picks, else `default`."""
        picks = self.cases[case].picks
        return ",".join(self.names[place] for place in picks) if picks else default

    def label(self, case: int, default: str) -> str:
        """The name of a case in the result file; `default` as in `interface`."""
        return self.cases[case].label(self.interface(case, default))

    def agreed(self) -> dict[str, str]:
        """What separately started ranks must agree on, under the names that users know."""
        return {
            "the number of interfaces (--interface)": str(len(self.names)),
            "what is to be measured": repr([case.label("") + repr(case.picks) for case in self.cases]),
            "--rounds": str(self.rounds),
            "--budget": repr(None if self.budget is None else self.budget.seconds),
        }


@dataclass(frozen=True)
class Gathered:
    """Every rank's host and the interfaces it may use, by rank."""

    hosts: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    default_interface: str


@dataclass(frozen=True)
class Built:
    """A case is ready. `buckets`, `parameters` and `batch_size` describe a step; 0 for other cases."""

    case: int
    parameters: int
    batch_size: int
    dataset: str


@dataclass(frozen=True)
class Measured:
    """One round: seconds of one step (or all-reduce) on the slowest rank, the mean over `steps` of them."""

    case: int
    seconds: float
    steps: int


@dataclass(frozen=True)
class Traced:
    """The case's trace is complete; `source` says whose it is."""

    case: int
    source: str


@dataclass(frozen=True)
class LeftOut:
    """A case that was not measured, and why."""

    case: int
    reason: str


@dataclass(frozen=True)
class Elsewhere:
    """The share of all processors that other programs used during the launch, 0 to 1."""

    share: float


News = Gathered | Built | Measured | Traced | LeftOut | Elsewhere


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
