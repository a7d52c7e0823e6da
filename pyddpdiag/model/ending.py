"""How a rank's process ended, and where it was while it recorded nothing: parts of its sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pyddpdiag.model.fields import IF_ANY, Limit
from pyddpdiag.model.untrusted import LATEST_NS

NAME_LIMIT: Final = 200
MESSAGE_LIMIT: Final = 300

INTERRUPT: Final = "KeyboardInterrupt"
"""The exception that Python makes of SIGINT."""


def note_beside(trace: Path) -> Path:
    """Where the process that records `trace` leaves its note if a signal ends it."""
    return trace.with_suffix(".end")


@dataclass(frozen=True)
class End:
    """What ended a process that did not come to the end of its script.

    Attributes:
        error: the class of the exception that nobody caught; empty: there was none.
        message: the first line of its text; of a signal: the C++ exception that led to it, if one did.
        where: the line of the script's own code that it came from, as "train.py:12"; empty: not known.
        signal: the signal that ended it, as "SIGTERM"; empty: none did.
        at_ns: when, on the records' clock; 0: not known.
    """

    error: Annotated[str, IF_ANY, Limit(NAME_LIMIT)] = ""
    message: Annotated[str, IF_ANY, Limit(MESSAGE_LIMIT)] = ""
    where: Annotated[str, IF_ANY, Limit(NAME_LIMIT)] = ""
    signal: Annotated[str, IF_ANY, Limit(NAME_LIMIT)] = ""
    at_ns: Annotated[int, Limit(LATEST_NS + 1)] = 0

    @property
    def sound(self) -> bool:
        """Whether it says what ended the process."""
        return bool(self.error or self.signal)

    @property
    def interrupted(self) -> bool:
        """Whether somebody ended it from outside, as Ctrl-C and job schedulers do."""
        return self.error == INTERRUPT or self.signal in ("SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU")


@dataclass(frozen=True)
class Stay:
    """The main thread was at `where`, a line of the script's own code, while nothing was recorded.

    `since_ns` is when the last record had come, `until_ns` when it was last seen there, on the records' clock.
    """

    where: Annotated[str, Limit(NAME_LIMIT)]
    since_ns: int
    until_ns: Annotated[int, Limit(LATEST_NS + 1)]

    @property
    def sound(self) -> bool:
        """Whether it says where and when."""
        return self.where != "" and 0 < self.since_ns <= self.until_ns
