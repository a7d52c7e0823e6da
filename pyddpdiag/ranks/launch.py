"""Launches ranks on this machine and reports the outcome of all of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import TypeVar, cast

from pyddpdiag._loader import require_torch
from pyddpdiag.errors import RankFailedError, UsageError
from pyddpdiag.ranks import interfaces, interrupts, process
from pyddpdiag.ranks.failure import blame
from pyddpdiag.ranks.interrupts import StopRequest
from pyddpdiag.ranks.lifetime import Assignment
from pyddpdiag.ranks.process import RankProcess
from pyddpdiag.ranks.rendezvous import FileTarget, Place, Target
from pyddpdiag.ranks.session import Event, Note, Options, Session
from pyddpdiag.ranks.stale import fresh_file

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


@dataclass(frozen=True)
class Node:
    """This machine.

    Attributes:
        nproc: ranks on each machine; the same everywhere.
        place: of the machine, counted as a rank among machines: where its ranks meet those of the others. None: all
            ranks are here, and meet where `launch` says.

    Raises:
        UsageError: it is to launch no rank.
    """

    nproc: int
    place: Place | None = None

    def __post_init__(self) -> None:
        if self.nproc < 1:
            raise UsageError(f"--nproc is {self.nproc}, but at least 1 rank is needed.")

    @property
    def world_size(self) -> int:
        """Ranks of all machines."""
        return self.nproc * (1 if self.place is None else self.place.world_size)

    @property
    def alone(self) -> bool:
        """Whether all ranks are on this machine."""
        return self.world_size == self.nproc

    @property
    def ranks(self) -> range:
        """This machine's ranks."""
        first = 0 if self.place is None else self.place.rank * self.nproc
        return range(first, first + self.nproc)

    def places(self, target: Target) -> list[Place]:
        """The places of this machine's ranks, which meet at `target` unless the machine has a place."""
        where = target if self.place is None else self.place.target
        return [Place(rank, self.world_size, self.nproc, where) for rank in self.ranks]


T = TypeVar("T")


def launch(
    job: Callable[[Session], T],
    options: Options,
    node: Node,
    *,
    prepare: Callable[[], str | None] = lambda: None,
    on_event: Callable[[Event], None] = lambda _: None,
) -> T:
    """Runs a job on the ranks of `node` and returns the result of the first. No process outlives the call.

    Args:
        job: called on each rank with its process group up. It is pickled: the function must be importable by a
            spawned process, and importing it should take no time (let it import torch by itself).
        options: see there.
        node: which ranks are started here.
        prepare: called after all other checks and before the first rank is started. Its result on the machine
            of rank 0 is every rank's `Session.payload`; its errors are raised.
        on_event: called in this thread with every event of every rank, and with notes of the launcher's own.

    Raises:
        NativeModuleError: torch is not installed; nothing was started.
        UsageError: an interface is not available; nothing was started.
        RankFailedError: a rank failed or died; all others have been ended.
        KeyboardInterrupt, SystemExit: this process was asked to stop; all ranks have been ended.
    """
    require_torch()  # here, or each rank ends in a traceback
    interface, note = interfaces.choose(options.interfaces, local=node.alone)
    if note:
        on_event(Note(note))
    payload = prepare()
    ranks: list[process.RankProcess] = []
    with interrupts.noted() as stop, fresh_file() as path:
        try:
            for place in node.places(FileTarget(str(path))):
                assignment = Assignment(
                    place, options, interface, payload=payload, fresh_file=node.place is None
                )
                ranks.append(process.start(assignment, job, path.parent))
            return cast("T", supervise(ranks, stop, options.timeout_s, on_event))
        finally:
            process.end(ranks)
