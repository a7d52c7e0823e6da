"""When and why the ranks' processes ended, by themselves, after others, or from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Final, Literal

from pyddpdiag.analyse.bounds import ALIVE_MS, STANDS_MS
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
        at_ms: when what is noted came; infinite: not known.
        alive_ms: the last sign of life; minus infinite: not known.
        newest_ms: the time of its newest record.
        where: the line at which it was seen since that record; empty: not known.
    """

    rank: int
    end: End | None
    why: Why | None
    at_ms: float
    alive_ms: float
    newest_ms: float
    where: str = ""

    def outlived(self, moment_ms: float) -> bool:
        """Whether the process surely lived at a moment."""
        return self.alive_ms >= moment_ms


def endings(view: RunView) -> dict[int, Ending]:
    """The ends of all ranks that have a trace, by rank; a process that still runs has none, but its signs of life."""
    zero = view.headers[0].monotonic_ns
    failed: dict[int, float] = {}
    for error in view.errors.first:
        failed.setdefault(error.rank, inf if error.at_ms is None else error.at_ms)
    found = {}
    for trace, clock in zip(view.run.ranks, view.clocks, strict=True):
        end, seen, header = trace.sidecar.end, trace.sidecar.seen, trace.header

        def common(ns: int, unknown: float, offset_ns: float = clock.offset_ns) -> float:
            return (ns + offset_ns - zero) / 1e6 if ns else unknown

        ended_ns = end.at_ns if end is not None else 0
        at_ms = common(ended_ns, inf)
        found[trace.rank] = Ending(
            trace.rank,
            end,
            _why(end, at_ms, failed.get(trace.rank, inf)),
            at_ms,
            max(common(ended_ns, -inf), common(header.heartbeat_ns, -inf)),
            common(trace.newest_ns, 0.0),
            (seen.where if seen is not None and seen.until_ns > trace.newest_ns else "")
            or view.lines.last(trace.rank, trace.newest_ns),
        )
    return found


def _why(end: End | None, at_ms: float, failed_ms: float) -> Why | None:
    if end is None:
        return None
    if end.interrupted:
        return "interrupted"
    if end.signal:
        return "own"
    if failed_ms <= at_ms < inf:
        return "followed"  # an operation with the other ranks failed before it
    explained = explain(f"{end.error}: {end.message}")
    return "followed" if explained.known and explained.role in FOLLOWS else "own"


def first_of_own(ends: dict[int, Ending]) -> tuple[int, ...]:
    """The ranks that ended first for a reason of their own: with the earliest, those that have the same one."""
    own = sorted((one for one in ends.values() if one.why == "own"), key=lambda one: one.at_ms)
    return tuple(one.rank for one in own if _reason(one) == _reason(own[0]))


def _reason(one: Ending) -> tuple[str, str, str]:
    end = one.end or End()
    return end.error, end.signal, end.where


@dataclass(frozen=True)
class Interruption:
    """The run was ended from outside: `signal`, "SIGINT" for Ctrl-C, in `step`, at `at_ms` on the common clock.

    `ranks` got it first; empty: the whole run did. `ahead_ms`: how long before the others. `at_ms` infinite: not known.
    `command`: the exit code of the run's command, if that had ended before its ranks, so that `pyddpdiag run` ended
    them; None: it had not.
    """

    signal: str
    step: int | None
    at_ms: float
    ranks: tuple[int, ...] = ()
    ahead_ms: float = 0.0
    command: int | None = None


def interruption(view: RunView) -> Interruption | None:
    """By what the run was ended from outside, if it came before anything else went wrong."""
    ends, command, first = view.endings, view.run.command, view.headers[0]
    interrupted = sorted(
        (one for one in ends.values() if one.why == "interrupted"), key=lambda one: one.at_ms
    )
    end = interrupted[0].end if interrupted else None
    sent = command.signal if command is not None else ""
    left = command if command is not None and command.left_s else None
    name = sent or (end.signal or "SIGINT" if end is not None else "SIGTERM" if left else "")
    if not name:
        return None
    noted_s = (command.signal_s, command.left_s) if command is not None else ()
    moments = [one * 1e3 - first.wall_ns / 1e6 for one in noted_s if one]
    at_ms = min([one.at_ms for one in interrupted[:1]] + moments, default=inf)
    # Whoever is asked to end a run after something has failed, ends a broken run.
    slack_ms = ALIVE_MS if sent or name == "SIGINT" else 0.0
    before = [one.at_ms for one in ends.values() if one.why in ("own", "followed")]
    before += [error.at_ms for error in view.errors.first if error.at_ms is not None]
    if min(before, default=inf) < at_ms - slack_ms:
        return None
    # Killed, and not known to have lived when the others got the signal: they got it because of that.
    unnoted = [ends[rank.rank] for rank in view.ranks if not rank.closed and rank.ended is None]
    unnoted = [one for one in unnoted if one.end is None]
    if not (sent or interrupted or unnoted):
        return None  # the command left processes, but none of its ranks
    if at_ms < inf and not all(one.outlived(at_ms - slack_ms) for one in unnoted):
        return None
    # A terminal sends Ctrl-C to all ranks.
    whole = bool(sent or left) or name == "SIGINT" or len(interrupted) + len(unnoted) == len(ends)
    early, ahead_ms = ((), 0.0) if sent or left else _ahead(interrupted)
    unsure_ms = (inf if clock.uncertainty_ns is None else clock.uncertainty_ns / 1e6 for clock in view.clocks)
    if max(unsure_ms) > ahead_ms:
        early, ahead_ms = (), 0.0
    named = early if early or whole else tuple(one.rank for one in interrupted)
    steps = [rank.last_step for rank in view.ranks] + [one.step for one in view.in_flight.first]
    newest = max((step for step in steps if step is not None), default=None)
    return Interruption(name, newest, at_ms, named, ahead_ms, None if left is None else left.exit_code)


def _ahead(interrupted: Sequence[Ending]) -> tuple[tuple[int, ...], float]:
    """The ranks that got the signal clearly before the others, which a launcher then ended, and by how much."""
    if len(interrupted) < 2 or interrupted[-1].at_ms == inf:
        return (), 0.0
    gaps = [later.at_ms - earlier.at_ms for earlier, later in pairwise(interrupted)]
    widest = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[widest] < STANDS_MS or interrupted[0].end is None or interrupted[0].end.error:
        return (), 0.0  # an exception comes when Python next runs
    return tuple(one.rank for one in interrupted[: widest + 1]), gaps[widest]


def who_sends(signal: str) -> str:
    """Where a signal comes from that ends a run from outside."""
    return {
        "SIGHUP": "SIGHUP comes when a terminal closes: start the run with nohup, in tmux, or as a service.",
        "SIGXCPU": "SIGXCPU comes at a limit of processor time: ulimit -t, or the scheduler's.",
        "SIGINT": "Somebody pressed Ctrl-C, or sent SIGINT.",
    }.get(
        signal,
        f"{signal} comes from whoever stops a job: a scheduler at its time limit or to make room, a container that is "
        "shut down, kill. Their log says why.",
    )
