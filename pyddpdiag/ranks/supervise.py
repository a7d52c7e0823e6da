"""Watches launched ranks until all are done, or one of them fails and is to blame."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection

from pyddpdiag.errors import RankFailedError
from pyddpdiag.ranks.blame import blame
from pyddpdiag.ranks.events import Event, Note
from pyddpdiag.ranks.interrupts import StopRequest
from pyddpdiag.ranks.process import RankProcess

_POLL_S = 0.2
# After the first sign of trouble the other ranks get this long to report theirs; longer while only victims
# have reported.
_GRACE_S = 1.0
_GRACE_FOR_CAUSE_S = 3.0
_LOCATE_S = 1.0
# Spawning and loading torch on a busy machine, on top of the timeout that the ranks themselves keep.
_START_SLACK_S = 60.0
_LEAVE_S = 30.0


def supervise(
    ranks: Sequence[RankProcess],
    stop: StopRequest,
    timeout_s: float,
    on_event: Callable[[Event], None],
) -> object:
    """Returns the first rank's result when all ranks are done. Does not end any rank.

    Raises:
        RankFailedError: a rank failed, died, or did not get ready in time.
        KeyboardInterrupt, SystemExit: this process was asked to stop.
    """
    start_limit = time.monotonic() + timeout_s + _START_SLACK_S
    finished_at: float | None = None
    while True:
        _wait_and_take(ranks, on_event)
        if stop.signal_number:
            if stop.signal_number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + stop.signal_number)
        if any(r.trouble is not None for r in ranks):
            raise _explain(ranks, on_event)
        now = time.monotonic()
        done = [r.finished for r in ranks if r.finished is not None]
        if len(done) == len(ranks):
            finished_at = finished_at or now
            if all(r.ended for r in ranks):
                return done[0].result
            if now - finished_at > _LEAVE_S:
                late = ", ".join(str(r.rank) for r in ranks if not r.ended)
                text = (
                    f"All ranks are done, but rank {late} did not leave within {_LEAVE_S:g} s and was ended."
                )
                on_event(Note(text))
                return done[0].result
        if now > start_limit and not all(r.joined for r in ranks):
            late = ", ".join(str(r.rank) for r in ranks if not r.joined)
            raise RankFailedError(
                f"rank {late} did not get ready within {timeout_s + _START_SLACK_S:g} s.",
                rank=next(r.rank for r in ranks if not r.joined),
                hint="it may be stopped, or this machine is overloaded; --timeout waits longer.",
            )


def _wait_and_take(
    ranks: Sequence[RankProcess], on_event: Callable[[Event], None], timeout_s: float = _POLL_S
) -> None:
    """Waits a little for anything to happen, then takes all that has happened."""
    connection.wait([one for rank in ranks for one in rank.waited], timeout_s)
    for rank in ranks:
        for event in rank.take():
            on_event(event)


def _explain(ranks: Sequence[RankProcess], on_event: Callable[[Event], None]) -> RankFailedError:
    """Gives the other ranks a moment to report their errors, and names the one that failed first."""
    begin = time.monotonic()
    while True:
        troubles = [r.trouble for r in ranks if r.trouble is not None]
        grace = _GRACE_FOR_CAUSE_S if all(t.secondary for t in troubles) else _GRACE_S
        open_ranks = [r for r in ranks if r.trouble is None and r.finished is None]
        left = begin + grace - time.monotonic()
        if not open_ranks or left <= 0:
            break
        _wait_and_take(ranks, on_event, min(left, _POLL_S))
    silent = {}
    if open_ranks and all(t.secondary for t in troubles):
        silent = _locate(open_ranks, on_event)
    return blame(troubles, silent, [r.rank for r in open_ranks])


def _locate(ranks: Sequence[RankProcess], on_event: Callable[[Event], None]) -> dict[int, str]:
    for rank in ranks:
        rank.ask_where()
    limit = time.monotonic() + _LOCATE_S
    while time.monotonic() < limit and not all(r.stacks or r.ended for r in ranks):
        _wait_and_take(ranks, on_event, 0.1)
    return {r.rank: r.stacks for r in ranks}
