"""What a check is, what it may look at, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from pyddpdiag.doctor.launcher_facts import Launch
from pyddpdiag.messages.shells import Line, Shell
from pyddpdiag.ranks.rendezvous import Target


class Status(IntEnum):
    """How a check went; the higher, the worse."""

    PASS = 0
    WARN = 1
    FAIL = 2

    @property
    def word(self) -> str:
        """In lower case, for tables and JSON."""
        return self.name.lower()


@dataclass(frozen=True)
class Outcome:
    """One line of the table.

    Attributes:
        name: what was looked at.
        status: how it went.
        text: what was found.
        fix: what to do, if it did not pass.
        lines: the fix as lines to paste.
    """

    name: str
    status: Status
    text: str
    fix: str = ""
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Situation:
    """What the checks look at, beside the machine itself.

    Attributes:
        environ: the environment variables that a rank started from here would have.
        launch: rank, world and launcher, as far as options and variables tell.
        target: where the ranks are to meet; None if that is unknown.
        problem: why the place to meet cannot be understood; "" if it can, or none was given.
        shell: for which to write lines.
        wait_s: longest wait of a check for anything outside of this process.
        batch_size: of each rank, for the note about the learning rate.
    """

    environ: Mapping[str, str]
    launch: Launch
    target: Target | None
    problem: str
    shell: Shell
    wait_s: float = 1.0
    batch_size: int | None = None


Check = Callable[[Situation], Iterator[Outcome]]
"""Looks at one concern; never raises for what the machine is like, and waits no longer than `wait_s`."""


def passed(name: str, text: str) -> Outcome:
    """An outcome with nothing to do."""
    return Outcome(name, Status.PASS, text)


def warned(name: str, text: str, fix: str, *lines: Line) -> Outcome:
    """An outcome that may cost time or trouble."""
    return Outcome(name, Status.WARN, text, fix, lines)


def failed(name: str, text: str, fix: str, *lines: Line) -> Outcome:
    """An outcome that will keep the job from working."""
    return Outcome(name, Status.FAIL, text, fix, lines)
