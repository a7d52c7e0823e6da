"""A rank's process or trace ended without an error while the others went on, failed or closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding, RankStats
from pyddpdiag.model.words import count, ranks, verb

NOTES_END: Final = 2
"""From this minor version of the format on, a process notes how it ends."""


def lost_ranks(view: RunView) -> list[RankStats]:
    """Ranks that ended without closing their traces and without an error of their own.

    A process that is gone and came to no end that it could note was killed. Traces before format 1.2 have no such
    note: a script may legitimately end without closing its recorder, so there must be evidence that it ended early:
    the others wait for it, failed or closed, or it had an operation in flight. Where the processes cannot be seen,
    these are the ranks that neither closed, nor ended in good order, nor report an error, if some other rank did one
    of these. Only where no rank was killed, those count that an exception ended.
    """
    blamed = {error.rank for error in view.errors.first}
    silent = [rank for rank in view.ranks if not rank.closed and rank.rank not in blamed]
    dead = [rank for rank in silent if rank.process == "dead"]
    missing = {rank for awaited in view.awaited for rank in awaited.missing}
    # The ranks that others wait for ended first; the others followed.
    first = [rank for rank in silent if rank.rank in missing and (rank in dead or rank.ended)]
    if first:
        return first
    # Nothing waits any more: what ended without them failed, and the others ended of that.
    never_began = {rank for one in view.unmatched for rank in one.missing}
    first = [rank for rank in silent if rank.process in ("dead", "unknown") and rank.rank in never_began]
    if first and len(silent) == len(view.ranks):
        return first
    # A rank that waits in what another never began did all right, whatever ended it then.
    waits = {rank for awaited in view.awaited if awaited.missing for rank in awaited.waiting} - missing
    telling = {header.rank for header in view.headers if header.minor >= NOTES_END}
    unnoted = [rank for rank in silent if rank.ended is None]
    others = len(unnoted) < len(view.ranks)
    killed = [
        rank
        for rank in unnoted
        if (rank in dead and (rank.rank in telling or others or rank.in_flight))
        or (rank.process == "unknown" and others and rank.rank not in waits)
    ]
    return killed or [rank for rank in silent if rank.ended == "exception" and rank.rank not in waits]


def _look(view: RunView) -> Iterator[Finding]:
    lost = lost_ranks(view)
    if not lost:
        return
    one = len(lost) == 1
    dead = all(rank.process == "dead" or rank.ended for rank in lost)
    how = _how(lost)
    failed = len({error.rank for error in view.errors.first})
    waiting = sorted(
        {rank for awaited in view.awaited for rank in awaited.waiting} - {rank.rank for rank in lost}
    )
    last = max((rank.last_step for rank in lost if rank.last_step is not None), default=None)
    where = f" (last seen in step {last})" if last is not None else ""
    if failed:
        after = f"{count(failed, 'other rank')} then failed"
    elif waiting:
        after = f"{ranks(waiting)} still {verb(waiting, 'waits', 'wait')} in an operation"
    elif failures := [one for one in view.unmatched if {rank.rank for rank in lost} == set(one.missing)]:
        never = "it" if one else "they"
        after = f"{failures[0].what}, which {never} never began, failed on {ranks(failures[0].ended)}"
    elif len(lost) == len(view.ranks):
        after = (
            "operations were in flight" if any(rank.in_flight for rank in lost) else "no rank came to its end"
        )
    elif any(rank.closed for rank in view.ranks):
        after = "the others closed theirs"
    else:
        ended = all(rank.ended or rank in lost for rank in view.ranks)
        after = f"the others {'ended in good order' if ended else 'went on'}"
    yield Finding(
        kind="rank_lost",
        severity="error",
        message=f"{ranks([rank.rank for rank in lost])} {how}{where}; {after}.",
        confidence="high" if failed or (dead and waiting) or lost[0].ended == "exception" else "medium",
        rank=lost[0].rank if one else None,
        since_step=last,
        evidence={
            "last_step": last,
            "others_failed": failed,
            "others_waiting": len(waiting),
            "ended": lost[0].ended,
        },
        change_mind="Its script ends by os._exit() and without recorder.close()."
        if dead
        else "The process still runs, or its script ends without recorder.close().",
        advice="Look at this rank's own output, its memory use and the system's log of killed processes.",
    )


def _how(lost: Sequence[RankStats]) -> str:
    """What became of these ranks."""
    ends = {rank.ended for rank in lost}
    if ends == {"exception"}:
        return "ended by an exception that nobody caught"
    if ends == {"orderly"}:
        return "ended in good order and too early, without closing the trace"
    if all(rank.process == "dead" for rank in lost):
        return "ended: the process is gone and did not close the trace"
    return "stopped without closing the trace"


CHECK = Check({"rank_lost": ("error",)}, _look, rests_on="waits")
