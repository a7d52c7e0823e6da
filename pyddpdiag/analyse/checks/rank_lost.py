"""A rank's process ended, by an error of its own or without a word, while the others went on, failed or closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from pyddpdiag.analyse.bounds import ALIVE_MS
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.endings import first_of_own
from pyddpdiag.analyse.view import RunView
from pyddpdiag.messages.exit_codes import ended
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import Shell, shell_on
from pyddpdiag.messages.source import without_source
from pyddpdiag.model.ending import End
from pyddpdiag.model.findings import Finding, culprit
from pyddpdiag.model.rows import RankStats
from pyddpdiag.model.words import count, ranks, verb

NOTES_END: Final = 2
"""From this minor version of the format on, a process notes how it ends."""

SHOWN: Final = 160
"""Characters of an error's text in the verdict."""

_KILLED = "Look at this rank's own output, its memory use and the system's log of killed processes."
_SUSPENDED = (
    "A process that is killed closes its connections at once, and the others fail then. So it was suspended (a "
    "debugger, SIGSTOP, a virtual machine that is paused or moved), or its machine or network was lost."
)


def lost_ranks(view: RunView) -> list[RankStats]:
    """Ranks that ended for a reason of their own, or without closing their traces and without an error.

    A rank that a launcher ended because another one had failed is none of them, nor one that was seen alive after the
    first failure. A process that is gone and came to no end that it could note was killed. Where the processes cannot
    be seen, these are the ranks that neither closed, nor ended normally, nor report an error, if some other rank
    did one of these. Only where no rank was killed, those count that an exception ended.
    """
    if view.interruption is not None:
        return []
    if own := _of_own(view):
        return own
    blamed = {error.rank for error in view.errors.first}
    silent = [
        rank
        for rank in view.ranks
        if not rank.closed and rank.rank not in blamed and not _only_followed(view, rank)
    ]
    missing = {rank for awaited in view.awaited for rank in awaited.missing}
    # The ranks that others wait for ended first; the others followed.
    first = [rank for rank in silent if rank.rank in missing and (rank.process == "dead" or rank.ended)]
    if not first and len(silent) == len(view.ranks):
        # Nothing waits any more: what ended without them failed, and the others ended of that.
        never_began = {rank for one in view.unmatched for rank in one.missing}
        first = [rank for rank in silent if rank.process in ("dead", "unknown") and rank.rank in never_began]
    if first:
        return first
    # A rank that waits in what another never began did all right, whatever ended it then.
    waits = {rank for awaited in view.awaited if awaited.missing for rank in awaited.waiting} - missing
    # Unless that other one lives: then it is waited for no more, and the rank ended by itself.
    alive = {rank.rank for rank in view.ranks if rank.process in ("running", "stopped")}
    absent = set(view.run.missing)
    in_vain = {
        rank
        for awaited in view.awaited
        if (whom := {*awaited.missing, *absent.intersection(awaited.unsure)}) and not alive & whom
        for rank in awaited.waiting
    } - missing
    unnoted = [rank for rank in silent if rank.ended is None]
    others = len(unnoted) < len(view.ranks)
    # Before that format a script that ends without closing its recorder leaves nothing else.
    noted = others or view.headers[0].minor >= NOTES_END
    killed = [
        rank
        for rank in unnoted
        if rank.process == "dead" and rank.rank not in in_vain and (noted or rank.in_flight)
    ]
    if others:
        killed += [rank for rank in unnoted if rank.process == "unknown" and rank.rank not in waits]
    return killed or [rank for rank in silent if rank.ended == "exception" and rank.rank not in waits]


def _of_own(view: RunView) -> list[RankStats]:
    """The ranks that ended first for a reason that is noted; none if another one was killed well before them."""
    first = first_of_own(view.endings)
    at_ms = min((view.endings[rank].at_ms for rank in first), default=inf)
    for rank in view.ranks:
        seen = view.endings[rank.rank]
        killed = rank.process == "dead" and not rank.closed and rank.ended is None and seen.end is None
        if killed and -inf < seen.alive_ms < at_ms - ALIVE_MS < inf:
            return []
    return [rank for rank in view.ranks if rank.rank in first]


def _only_followed(view: RunView, rank: RankStats) -> bool:
    """Whether something else had failed while this rank still lived."""
    seen = view.endings[rank.rank]
    if seen.why == "interrupted":
        return True
    moments = [error.at_ms for error in view.errors.first if error.at_ms is not None]
    moments += [one.at_ms for one in view.endings.values() if one.why == "followed"]
    unsure = max((clock.uncertainty_ns or 0) / 1e6 for clock in view.clocks)
    return rank.ended is None and seen.outlived(min(moments, default=inf) + unsure)


def _look(view: RunView) -> Iterator[Finding]:
    lost = lost_ranks(view)
    if not lost:
        return
    seen = view.endings[lost[0].rank]
    end = seen.end if seen.why == "own" else None
    codes = {view.exit_codes.get(rank.rank) for rank in lost}
    code = codes.pop() if len(codes) == 1 else None
    frozen_s = _frozen_s(view, lost) if end is None and code is None else 0.0
    named = [rank.rank for rank in lost]
    failed = len({error.rank for error in view.errors.first}.difference(named))
    waiting = sorted({rank for awaited in view.awaited for rank in awaited.waiting}.difference(named))
    last = max((rank.last_step for rank in lost if rank.last_step is not None), default=None)
    where = f" (last seen in step {last})" if last is not None else ""
    if _all_at_one_place(view, lost):
        yield Finding(
            kind="rank_lost",
            severity="note",
            message=f"no rank closed its trace: all ended at one place{where}, with nothing in flight.",
            confidence="medium",
            since_step=last,
            evidence={"last_step": last},
            change_mind="All ranks were killed at the same moment, before the end of the training.",
            advice="Scripts that end by os._exit(), and frameworks that kill their workers at the end, leave such "
            "traces: call recorder.close() before.",
        )
        return
    noted = end or End()
    dead = all(rank.process == "dead" or rank.ended for rank in lost)
    sure = end is not None or failed or (dead and waiting) or lost[0].ended == "exception" or code is not None
    yield Finding(
        kind="rank_lost",
        severity="error",
        message=f"{ranks(named)} {_how(lost, end, code, frozen_s)}{where}{_after(view, lost, failed, waiting)}.",
        confidence="high" if sure else "medium",
        rank=culprit(named),
        where=noted.where or seen.where or None if len(named) == 1 else None,
        since_step=last,
        evidence={
            "last_step": last,
            "others_failed": failed,
            "others_waiting": len(waiting),
            "ended": lost[0].ended,
            "error": noted.error or noted.signal or None,
            "line": noted.where or None,
            "exit_code": code,
        },
        change_mind="Another rank, whose trace is not here, failed before it."
        if end is not None
        else "Its script ends by os._exit() and without recorder.close().",
        advice=_SUSPENDED
        if frozen_s
        else _advice(lost, end, code, shell_on(view.sidecars[named[0]].platform)),
    )


def _all_at_one_place(view: RunView, lost: Sequence[RankStats]) -> bool:
    """Whether all ranks ended without a note when they had done the same, and nobody says that anything failed."""
    command = view.run.command
    return (
        len(lost) == len(view.ranks) > 1
        and not view.in_flight.total
        and not view.errors.total
        and not any(rank.ended or view.endings[rank.rank].end for rank in lost)
        and len({rank.last_step for rank in lost}) == 1
        and len({frozenset(each.buckets.items()) for each in view.progress}) == 1
        and not view.unmatched
        and (command is None or command.exit_code == 0)
    )


def _after(view: RunView, lost: Sequence[RankStats], failed: int, waiting: Sequence[int]) -> str:
    """What became of the others."""
    numbers = {rank.rank for rank in lost}
    if failed:
        return f"; {count(failed, 'other rank')} then failed"
    if waiting:
        if all(rank.process == "dead" or rank.ended_by for rank in view.ranks if rank.rank in waiting):
            return f"; {ranks(waiting)} waited in an operation to {verb(waiting, 'its', 'their')} end"
        return f"; {ranks(waiting)} still {verb(waiting, 'waits', 'wait')} in an operation"
    if failures := [each for each in view.unmatched if numbers == set(each.missing)]:
        never = verb(tuple(numbers), "it", "they")
        return f"; {failures[0].what}, which {never} never began, failed on {ranks(failures[0].ended)}"
    if any(view.endings[rank.rank].why == "own" for rank in lost):
        ends = (one.end for one in view.endings.values() if one.why == "interrupted")
        signal = min((end.signal for end in ends if end is not None), default="")
        return f"; the others were then ended by {signal}" if signal else ""
    if len(lost) == len(view.ranks):
        return "; no rank came to its end"
    ended = all(rank.closed or rank.ended for rank in view.ranks if rank.rank not in numbers)
    return f"; the others {'came to their end' if ended else 'went on'}"


def _frozen_s(view: RunView, lost: Sequence[RankStats]) -> float:
    """How long before the others' timeout these ranks last lived; 0: that is not so.

    The system closes a process's connections when it ends, and the others fail at once. Theirs stayed open.
    """
    failed = view.first_failure
    if failed is None or explain(failed.error.text).role is not Role.WAITED:
        return 0.0
    silent_ms = [failed.at_ms - view.endings[rank.rank].alive_ms for rank in lost if not rank.ended]
    return min(silent_ms) / 1e3 if silent_ms and min(silent_ms) > ALIVE_MS and max(silent_ms) < inf else 0.0


def _how(lost: Sequence[RankStats], end: End | None, code: int | None, frozen_s: float) -> str:
    """What became of these ranks."""
    if frozen_s:
        return f"gave no sign of life for {frozen_s:.0f} s before the others' timeout"
    if end is not None:
        return _reason(end)
    ends = {rank.ended for rank in lost}
    if ends == {"exception"}:
        return "ended by an uncaught exception"
    if ends == {"orderly"}:
        return "ended normally but too early, without closing the trace"
    if code is not None:
        return f"{ended(code)}, as its launcher saw"
    if all(rank.process == "dead" for rank in lost):
        return "ended: the process is gone and did not close the trace"
    return "stopped without closing the trace"


def _reason(end: End) -> str:
    text = without_source(end.message)
    text = (text.split(". ")[0] if end.error else text).rstrip(".")
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    if end.error == "SystemExit":
        return f"ended by sys.exit({text})"
    at = f"{',' if text else ''} at {end.where}" if end.where else ""
    return f"ended by {end.error or end.signal}{': ' if text else ''}{text}{at}"


def _advice(lost: Sequence[RankStats], end: End | None, code: int | None, shell: Shell) -> str:
    """What to do about an error of its own, or where nothing is known of the end but of which kind it was."""
    text = "" if code is None else f"exitcode : {code}"
    if end is not None:
        text = f"{end.error}: {end.message}" if end.error else end.message
    if (explained := explain(text, lines_for=shell)).known:
        return f"{explained.cause} {explained.fix}"
    if end is None and {rank.ended for rank in lost} != {"exception"}:
        return _KILLED
    if end is None or end.error:
        return "This rank's own output has the whole traceback."
    if end.signal == "SIGABRT":
        return "A library ended the process: what it said stands at the end of this rank's own output."
    return (
        "Native code crashed. Run it once with python -X faulthandler: the traceback in this rank's own output says "
        "where."
    )


CHECK = Check(("rank_lost",), _look, rests_on="waits")
