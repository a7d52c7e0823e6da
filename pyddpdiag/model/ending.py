"""How a rank's process ended, and where it was while it recorded nothing: parts of its sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyddpdiag.model.untrusted import text, time_ns

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

    error: str = ""
    message: str = ""
    where: str = ""
    signal: str = ""
    at_ns: int = 0

    @property
    def interrupted(self) -> bool:
        """Whether somebody ended it from outside, as Ctrl-C and job schedulers do."""
        return self.error == INTERRUPT or self.signal in ("SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU")


@dataclass(frozen=True)
class Stay:
    """The main thread was at `where`, a line of the script's own code, while nothing was recorded.

    `since_ns` is when the last record had come, `until_ns` when it was last seen there, on the records' clock.
    """

    where: str
    since_ns: int
    until_ns: int


def end_to_json(end: End) -> dict[str, Any]:
    """The entry of a sidecar."""
    texts = {"error": end.error, "message": end.message, "where": end.where, "signal": end.signal}
    return {**{name: value for name, value in texts.items() if value}, "at_ns": end.at_ns}


def end_from_json(raw: Any) -> End | None:
    """What can be understood of it; None: nothing."""
    if not isinstance(raw, Mapping):
        return None
    end = End(
        text(raw, "error", NAME_LIMIT),
        text(raw, "message", MESSAGE_LIMIT),
        text(raw, "where", NAME_LIMIT),
        text(raw, "signal", NAME_LIMIT),
        time_ns(raw.get("at_ns")),
    )
    return end if end.error or end.signal else None


def stay_to_json(stay: Stay) -> dict[str, Any]:
    """The entry of a sidecar."""
    return {"where": stay.where, "since_ns": stay.since_ns, "until_ns": stay.until_ns}


def stay_from_json(raw: Any) -> Stay | None:
    """What can be understood of it; None: nothing."""
    if not isinstance(raw, Mapping):
        return None
    stay = Stay(text(raw, "where", NAME_LIMIT), time_ns(raw.get("since_ns")), time_ns(raw.get("until_ns")))
    return stay if stay.where and 0 < stay.since_ns <= stay.until_ns else None
