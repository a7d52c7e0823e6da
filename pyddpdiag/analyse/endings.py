"""When and why the ranks' processes ended: which of them for a reason of its own, which ones only followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.message import Role
from pyddpdiag.model import OperationError, RankStats
from pyddpdiag.model.command import CommandEnd
from pyddpdiag.model.ending import End
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.run import Run

TOGETHER_MS: Final = 50.0
"""Ranks to which somebody sends a signal get it within this time."""

FOLLOWS: Final = (Role.NETWORK, Role.WAITED, Role.VICTIM)

Why = Literal["own", "followed", "interrupted"]


@dataclass(frozen=True)
class Ending:
    """The end of one rank's process. Times are on the common clock, since the lowest rank's recorder was opened.

    Attributes:
        rank: whose it is.
        end: what is noted of it.
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


@dataclass(frozen=True)
class Interruption:
    """The run was ended from outside: `signal`, "SIGINT" for Ctrl-C, in `step`.

    `ranks` got it first; empty: the whole run did. `ahead_ms`: how long before the others.
    """

    signal: str
    step: int | None
    ranks: tuple[int, ...] = ()
    ahead_ms: float = 0.0


def endings(
    run: Run,
    clocks: Sequence[ClockOffset],
    errors: Sequence[OperationError],
) -> dict[int, Ending]:
    """The ends of all ranks that have a trace, by rank; a process that still runs has none, but its signs of life."""
    zero = run.ranks[0].header.monotonic_ns
    failed: dict[int, float] = {}
    for error in errors:
        if error.at_ms is not None:
            failed.setdefault(error.rank, error.at_ms)
    found = {}
    for trace, clock in zip(run.ranks, clocks, strict=True):
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
            seen.where if seen is not None and seen.until_ns > trace.newest_ns else "",
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
    told = explain(f"{end.error}: {end.message}")
    return "followed" if told.known and told.role in FOLLOWS else "own"


def first_of_own(ends: dict[int, Ending]) -> tuple[int, ...]:
    """The ranks that ended first for a reason of their own: with the earliest, those that have the same one."""
    own = [one for one in ends.values() if one.why == "own"]
    if not own:
        return ()
    first = min(own, key=lambda one: float("inf") if one.at_ms is None else one.at_ms)
    return tuple(one.rank for one in own if _reason(one) == _reason(first))


def _reason(one: Ending) -> tuple[str, str, str]:
    return (one.end.error, one.end.signal, one.end.where) if one.end is not None else ("", "", "")


def interruption(
    ends: dict[int, Ending],
    ranks: Sequence[RankStats],
    errors: Sequence[OperationError],
    clocks: Sequence[ClockOffset],
    step: int | None,
    command: CommandEnd | None,
) -> Interruption | None:
    """Whether somebody ended the run from outside before anything else went wrong.

    Args:
        ends: of all ranks.
        ranks: what their traces hold.
        errors: operations that failed.
        clocks: of the ranks.
        step: the newest one.
        command: how the command of `pyddpdiag run` ended.
    """
    interrupted = sorted(
        (one for one in ends.values() if one.why == "interrupted"),
        key=lambda one: float("inf") if one.at_ms is None else one.at_ms,
    )
    signal = command.signal if command is not None else ""
    if not interrupted and not signal:
        return None
    first_ms = interrupted[0].at_ms if interrupted else None
    other = [one.at_ms for one in ends.values() if one.why in ("own", "followed")]
    other += [error.at_ms for error in errors]
    if not signal and _earlier([moment for moment in other if moment is not None], first_ms):
        return None
    if signal and first_ms is None and any(one.why == "own" for one in ends.values()):
        return None
    # Killed, and not known to have lived when the others got the signal: they got it because of that.
    unnoted = [rank for rank in ranks if rank.process == "dead" and not rank.closed and rank.ended is None]
    silent = [ends[rank.rank] for rank in unnoted if ends[rank.rank].end is None]
    if not signal and first_ms is not None and not all(one.outlived(first_ms) for one in silent):
        return None
    end = interrupted[0].end if interrupted else None
    name = signal or (end.signal or "SIGINT" if end is not None else "")
    # A terminal sends Ctrl-C to all ranks; those that wait in native code come to notice it later than a failure.
    whole = bool(signal) or name == "SIGINT" or len(interrupted) + len(silent) == len(ends)
    early, ahead_ms = _ahead(interrupted) if not signal else ((), 0.0)
    if any(clock.uncertainty_ns is None or clock.uncertainty_ns / 1e6 > ahead_ms for clock in clocks):
        early, ahead_ms = (), 0.0
    return Interruption(
        name, step, early if early or whole else tuple(one.rank for one in interrupted), ahead_ms
    )


def _earlier(moments: Sequence[float], than_ms: float | None) -> bool:
    return bool(moments) and than_ms is not None and min(moments) < than_ms


def _ahead(interrupted: Sequence[Ending]) -> tuple[tuple[int, ...], float]:
    """The ranks that got the signal clearly before the others, which a launcher then ended, and by how much."""
    times = [one.at_ms for one in interrupted if one.at_ms is not None]
    if len(times) != len(interrupted) or len(times) < 2:
        return (), 0.0
    gaps = [later - earlier for earlier, later in pairwise(times)]
    widest = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[widest] < TOGETHER_MS or interrupted[0].end is None or interrupted[0].end.error:
        return (), 0.0  # an exception comes when Python next runs
    return tuple(one.rank for one in interrupted[: widest + 1]), gaps[widest]


__all__ = ["Ending", "Interruption", "endings", "first_of_own", "interruption"]
