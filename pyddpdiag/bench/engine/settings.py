"""What a sweep is told to do: one frozen record that is handed to every rank."""

from __future__ import annotations

from dataclasses import dataclass

from pyddpdiag.bench.cases import Case
from pyddpdiag.errors import UsageError
from pyddpdiag.train.settings import HookKind, TrainSettings


@dataclass(frozen=True)
class SweepSettings(TrainSettings):
    """Settings of a sweep, for the launcher that trainings use as well.

    Attributes:
        cases: in the order of their worth.
        names: this rank's interfaces, which the cases pick from.
        rounds: of each case; with a budget, what is aimed at least.
        budget_s: of the whole command in seconds; None for as long as it takes.
        started: when the command was started, in seconds since 1970.
        launched: the ranks are processes that were started for nothing else.
        sittings: how often the ranks are started anew to measure all cases again; for launched ranks.
        race: go on while entrants cannot be told apart, up to `race.LONGEST` times the rounds.
        trace_folder: where the ranks leave the traces for the split; only all-reduces go without.
        sitting, began, skip: of the sitting at hand, set by `run_sweep`: its number, when its ranks were started
            (seconds since 1970), and cases that it leaves out. The first one completes the traces.
    """

    hook: HookKind = HookKind.PLAIN
    timeout_s: float = 60.0
    cases: tuple[Case, ...] = ()
    names: tuple[str, ...] = ()
    rounds: int = 20
    budget_s: float | None = None
    started: float = 0.0
    launched: bool = False
    sittings: int = 1
    race: bool = False
    trace_folder: str = ""
    sitting: int = 0
    began: float = 0.0
    skip: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cases:
            raise UsageError("there is nothing to measure.")
        if not self.trace_folder and any(case.kind == "step" for case in self.cases):
            raise UsageError("steps need a folder for their traces.")
        if not 1 <= self.rounds <= 10_000:
            raise UsageError(f"--rounds is {self.rounds}, but it must be from 1 to 10000.")
        if not 1 <= self.sittings <= 100:
            raise UsageError(f"--sittings is {self.sittings}, but it must be from 1 to 100.")
        if self.budget_s is not None and not 10 <= self.budget_s <= 86_400:
            raise UsageError(
                f"a budget of {self.budget_s:g} s cannot be kept.",
                hint="starting ranks takes seconds: 10 s to 24 h.",
            )

    def shared(self) -> dict[str, str]:
        """What ranks that are started one by one must agree on."""
        return {
            "the number of interfaces (--interface)": str(len(self.names)),
            "what is to be measured": repr([case.label("") + repr(case.picks) for case in self.cases]),
            "--rounds": str(self.rounds),
            "--budget": repr(self.budget_s),
        }
