"""What is true of a run: the kinds of finding that name its cause, and the rank to blame."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bed.jobs import Job
from pyddpdiag.model.kinds import KINDS

AS_LONG = 0.5
"""Who waits for a core for this part of the longest wait waits as well."""


def family(kind: str) -> str:
    """The class of a kind; "" for one that is in none."""
    return KINDS[kind].family if kind in KINDS else ""


@dataclass(frozen=True)
class Answer:
    """A right answer: a kind and, for a late rank, its cause; None: any.

    `beside`: of a kind that another finding must have. Where a run cannot tell two causes apart, the report names both.
    """

    kind: str
    cause: str | None = None
    beside: str = ""

    def fits(self, kind: str, cause: str | None, kinds: Collection[str]) -> bool:
        """Whether a finding of this kind and cause, in a report with these kinds, is this answer."""
        return kind == self.kind and self.cause in (None, cause) and (not self.beside or self.beside in kinds)


@dataclass(frozen=True)
class Truth:
    """The truth about a run.

    Attributes:
        answers: each names the cause; none for a healthy run.
        culprit: the rank to blame; None: no single one.
        also: another rank that is as much at fault.
        apart: the ranks of one of two hosts, where the path between these is at fault.
        shared: what strikes the culprit struck the others as well, as it turned out: to name nobody is right, too.
    """

    answers: tuple[Answer, ...] = ()
    culprit: int | None = None
    also: int | None = None
    apart: tuple[int, ...] = ()
    shared: bool = False

    @property
    def healthy(self) -> bool:
        """Whether nothing was injected."""
        return not self.answers


Fault = dict[str, Any]
"""The orders for ranks and runner, as plain JSON: `name`, `rank`, and numbers by name."""


def stronger(fault: Fault, dose: float) -> Fault:
    """The fault at so many times its strength; what has none (a kill, a wrong setting) is as it was."""
    scaled = {key: fault[key] * dose for key in ("share", "percent", "ms", "down_s") if key in fault}
    if "divide" in fault:
        # What a byte takes more over the link.
        scaled["divide"] = 1 + dose * (fault["divide"] - 1)
    return {**fault, **scaled}


@dataclass(frozen=True)
class Drawn:
    """A cause with its strength, culprit and job."""

    job: Job
    fault: Fault
    truth: Truth

    def truth_if(self, waited: Sequence[float | None]) -> Truth:
        """What is true after ranks waited for a core so long, in the same shares of the run: seen from outside.

        Other load on one rank's core makes that rank late, unless programs besides the bed load the others' as well.
        """
        known = [one for one in waited if one is not None]
        if self.fault["name"] != "core" or len(known) < self.job.ranks:
            return self.truth
        return replace(self.truth, shared=min(known) >= AS_LONG * max(known) > 0.0)
