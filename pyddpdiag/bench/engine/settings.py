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
        trace_folder: where the ranks leave the traces for the split; only all-reduces go without.
    """

    hook: HookKind = HookKind.PLAIN
    timeout_s: float = 60.0
    cases: tuple[Case, ...] = ()
    names: tuple[str, ...] = ()
    rounds: int = 20
    budget_s: float | None = None
    started: float = 0.0
    launched: bool = False
    trace_folder: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cases:
            raise UsageError("there is nothing to measure.")
        if not self.trace_folder and any(case.kind == "step" for case in self.cases):
            raise UsageError("steps need a folder for their traces.")
        if not 1 <= self.rounds <= 10_000:
            raise UsageError(f"--rounds is {self.rounds}, but it must be from 1 to 10000.")
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
