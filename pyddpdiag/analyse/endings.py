"""When and why the ranks' processes ended: which of them for a reason of its own, which ones only followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.message import Role
from pyddpdiag.model.ending import End

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView

FOLLOWS: Final = (Role.NETWORK, Role.WAITED, Role.VICTIM)

Why = Literal["own", "followed", "interrupted"]


@dataclass(frozen=True)
class Ending:
    """The end of one rank's process. Times are on the common clock, since the lowest rank's recorder was opened.

    Attributes:
        rank: whose it is.
        end: what is noted about it.
        why: `own`: a reason of its own, such as an exception in its code; `followed`: an error that says that another
            rank is gone or late; `interrupted`: a signal from outside. None: nothing is noted.
        at_ms: when what is noted came; None: not known.
        alive_ms: the last sign of life; None: not known.
        newest_ms: the time of its newest record.
        where: the line at which it was seen since that record; empty: not known.
    """

    rank: int
    end: End | None
    why: Why | None
    at_ms: float | None
    alive_ms: float | None
    newest_ms: float
    where: str = ""

    def outlived(self, moment_ms: float) -> bool:
        """Whether the process surely lived at a moment."""
        return self.alive_ms is not None and self.alive_ms >= moment_ms


def endings(view: RunView) -> dict[int, Ending]:
    """The ends of all ranks that have a trace, by rank; a process that still runs has none, but its signs of life."""
    zero = view.headers[0].monotonic_ns
    failed: dict[int, float] = {}
    for error in view.errors.first:
        if error.at_ms is not None:
            failed.setdefault(error.rank, error.at_ms)
    found = {}
    for trace, clock in zip(view.run.ranks, view.clocks, strict=True):
        end, seen, header = trace.sidecar.end, trace.sidecar.seen, trace.header

        def common(ns: int, offset_ns: float = clock.offset_ns) -> float | None:
            return (ns + offset_ns - zero) / 1e6 if ns else None

        at_ms = common(end.at_ns) if end is not None else None
        signs = [sign for sign in (at_ms, common(header.heartbeat_ns)) if sign is not None]
        found[trace.rank] = Ending(
            trace.rank,
            end,
            _why(end, at_ms, failed.get(trace.rank)),
            at_ms,
            max(signs, default=None),
            common(trace.newest_ns) or 0.0,
            (seen.where if seen is not None and seen.until_ns > trace.newest_ns else "")
            or view.lines.last(trace.rank, trace.newest_ns),
        )
    return found


def _why(end: End | None, at_ms: float | None, failed_ms: float | None) -> Why | None:
    if end is None:
        return None
    if end.interrupted:
        return "interrupted"
    if end.signal:
        return "own"
    if failed_ms is not None and at_ms is not None and failed_ms <= at_ms:
        return "followed"  # an operation with the other ranks failed before it
    explained = explain(f"{end.error}: {end.message}")
    return "followed" if explained.known and explained.role in FOLLOWS else "own"


def first_of_own(ends: dict[int, Ending]) -> tuple[int, ...]:
    """The ranks that ended first for a reason of their own: with the earliest, those that have the same one."""
    own = [one for one in ends.values() if one.why == "own"]
    if not own:
        return ()
    first = min(own, key=lambda one: float("inf") if one.at_ms is None else one.at_ms)
    return tuple(one.rank for one in own if _reason(one) == _reason(first))


def _reason(one: Ending) -> tuple[str, str, str]:
    return (one.end.error, one.end.signal, one.end.where) if one.end is not None else ("", "", "")
