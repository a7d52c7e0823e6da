"""What a sweep measures and how thoroughly; nothing changes it on the way from command line to result file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pyddpdiag.bench.cases import Case
from pyddpdiag.errors import UsageError

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
