"""Launches the ranks of a run on this machine, and answers for all of them."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from pyddpdiag.errors import RankFailedError, UsageError
from pyddpdiag.train import interfaces, interrupts, launched, traces
from pyddpdiag.train.events import Event, Finished, Joined, Located, TrainResult
from pyddpdiag.train.failure import Failure, Trouble, blame
from pyddpdiag.train.inputs import check_inputs
from pyddpdiag.train.meeting_file import fresh_file
from pyddpdiag.train.nodes import Node
from pyddpdiag.train.rank import Assignment
from pyddpdiag.train.rendezvous import FileTarget, Place
from pyddpdiag.train.settings import TrainSettings

_POLL_S = 0.2
# After the first sign of trouble the others get this long to tell theirs; longer while only victims have
# spoken.
_GRACE_S = 1.0
_GRACE_FOR_CAUSE_S = 3.0
_LOCATE_S = 1.0
_TERMINATE_S = 2.0
# Spawning and loading torch on a busy machine, on top of the timeout that the ranks themselves keep.
_START_SLACK_S = 60.0
_LEAVE_S = 30.0


class _Rank:
    """One launched process, as the launcher sees it."""

    def __init__(self, rank: int, process: SpawnProcess, events: Connection, orders: Connection) -> None:
        self.rank = rank
        self.process = process
        self.events: Connection | None = events
        self.orders = orders
        self.joined = False
        self.result: TrainResult | None = None
        self.trouble: Trouble | None = None
        self.stacks = ""
        self.ended = False

    def drain(self) -> list[Event]:
        """All events that have arrived, without waiting."""
        arrived: list[Event] = []
        while self.events is not None:
            try:
                if not self.events.poll():
                    break
                arrived.append(self.events.recv())
            except (EOFError, OSError):
                self.events.close()
                self.events = None
        return arrived

    def take(self, event: Event) -> None:
        """Keeps what an event says about this rank."""
        if isinstance(event, Joined):
            self.joined = True
        elif isinstance(event, Finished):
            self.result = event.result
        elif isinstance(event, Located):
            self.stacks = event.stacks
        elif isinstance(event, Failure) and self.trouble is None:
            self.trouble = Trouble(self.rank, time.monotonic(), failure=event)

    def look(self) -> None:
        """Notes the end of the process, if it has ended."""
        if not self.ended and not self.process.is_alive():
            self.ended = True
            if self.result is None and self.trouble is None:
                self.trouble = Trouble(self.rank, time.monotonic(), exit_code=self.process.exitcode)


def launch(
    settings: TrainSettings,
    nproc: int,
    *,
    on_event: Callable[[Event], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
    job: Callable[..., TrainResult] | None = None,
    node: Node | None = None,
) -> TrainResult:
    """Trains with `nproc` ranks on this machine and returns the first one's result. No process outlives the call.

    Args:
        settings: of the run.
        nproc: number of ranks.
        on_event: called in this thread with every event of every rank.
        on_note: called with sentences for the user.
        job: a picklable function to run on each rank instead of `loop.train_rank`.
        node: this machine's part of a run over several machines; None: all ranks are here.

    Raises:
        UsageError, DataError, CheckpointError, TraceExistsError, TraceFolderError: before anything is started.
        RankFailedError: a rank failed or died; all others have been ended.
        KeyboardInterrupt, SystemExit: this process was asked to stop; all ranks have been ended.
    """
    if nproc < 1:
        raise UsageError(f"--nproc is {nproc}, but at least 1 rank is needed.")
    settings.check_world(node.world_size if node is not None else nproc)
    if job is None:
        check_inputs(settings)
    alone = node is None or node.place.world_size == 1
    interface, note = interfaces.choose(settings.interfaces, local=alone)
    if note:
        on_note(note)
    trace = None
    # Without a name, the first machine's folder is everybody's; its ranks tell it to the others.
    named = settings.trace is not None or node is None or node.place.rank == 0
    if settings.hook.records and named:
        folder = Path(settings.trace) if settings.trace is not None else traces.default_folder()
        # Whatever ranks an earlier run had there: two runs in one folder cannot be told apart later.
        mine = [range(2**31)]
        if node is not None and not alone:
            ours = [place.rank for place in node.places()]
            # The first machine answers also for ranks that this world does not have.
            mine = [range(ours[0], ours[-1] + 1), range(node.world_size, 2**31 if ours[0] == 0 else 0)]
        for part in mine:
            traces.prepare(folder, force=settings.force, mine=part)
        trace = str(folder)
    ranks: list[_Rank] = []
    with interrupts.noted() as stop, fresh_file() as path:
        try:
            places = [Place(rank, nproc, nproc, FileTarget(str(path))) for rank in range(nproc)]
            for place in places if node is None else node.places():
                assignment = Assignment(place, settings, trace, interface, fresh_file=node is None)
                ranks.append(_start(assignment, path.parent, job))
            return _supervise(ranks, stop, on_event, on_note, settings.timeout_s)
        finally:
            _end(ranks)


def _start(assignment: Assignment, folder: Path, job: Callable[..., TrainResult] | None) -> _Rank:
    context = multiprocessing.get_context("spawn")
    events_in, events_out = context.Pipe(duplex=False)
    orders_in, orders_out = context.Pipe(duplex=False)
    rank = assignment.place.rank
    lines = launched.Lines(events_out, orders_in, str(folder))
    process = context.Process(
        target=launched.main, args=(assignment, lines, job), name=f"pyddpdiag-rank-{rank}"
    )
    with interrupts.held_back():
        process.start()
    # Only the rank may hold its ends, or their closing would not tell of its death.
    events_out.close()
    orders_in.close()
    return _Rank(rank, process, events_in, orders_out)


def _supervise(
    ranks: list[_Rank],
    stop: interrupts.StopRequest,
    on_event: Callable[[Event], None],
    on_note: Callable[[str], None],
    timeout_s: float,
) -> TrainResult:
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
        if all(r.result is not None for r in ranks):
            finished_at = finished_at or now
            result = ranks[0].result
            if all(r.ended for r in ranks) and result is not None:
                return result
            if now - finished_at > _LEAVE_S and result is not None:
                late = ", ".join(str(r.rank) for r in ranks if not r.ended)
                on_note(f"All is trained, but rank {late} did not leave within {_LEAVE_S:g} s and was ended.")
                return result
        if now > start_limit and not all(r.joined for r in ranks):
            late = ", ".join(str(r.rank) for r in ranks if not r.joined)
            raise RankFailedError(
                f"rank {late} did not get ready within {timeout_s + _START_SLACK_S:g} s.",
                rank=next(r.rank for r in ranks if not r.joined),
                hint="it may be stopped, or this machine is overloaded; --timeout waits longer.",
            )


def _wait_and_take(ranks: list[_Rank], on_event: Callable[[Event], None], timeout_s: float = _POLL_S) -> None:
    """Waits a little for anything to happen, then takes all that has happened."""
    waited: list[Connection | int] = [r.events for r in ranks if r.events is not None]
    waited += [r.process.sentinel for r in ranks if not r.ended]
    connection.wait(waited, timeout_s)
    for rank in ranks:
        was_ended = not rank.process.is_alive()
        # A rank's last words come before its end: read once more after it was seen to have ended.
        for event in rank.drain():
            rank.take(event)
            on_event(event)
        if was_ended:
            rank.look()


def _explain(ranks: list[_Rank], on_event: Callable[[Event], None]) -> RankFailedError:
    """Gives the other ranks a moment to tell their side, and names the one that failed first."""
    begin = time.monotonic()
    while True:
        troubles = [r.trouble for r in ranks if r.trouble is not None]
        grace = _GRACE_FOR_CAUSE_S if all(t.secondary for t in troubles) else _GRACE_S
        open_ranks = [r for r in ranks if r.trouble is None and r.result is None]
        left = begin + grace - time.monotonic()
        if not open_ranks or left <= 0:
            break
        _wait_and_take(ranks, on_event, min(left, _POLL_S))
    silent = {}
    if open_ranks and all(t.secondary for t in troubles):
        silent = _locate(open_ranks, on_event)
    return blame(troubles, silent)


def _locate(ranks: list[_Rank], on_event: Callable[[Event], None]) -> dict[int, str]:
    for rank in ranks:
        with suppress(OSError):
            rank.orders.send(launched.LOCATE)
    limit = time.monotonic() + _LOCATE_S
    while time.monotonic() < limit and not all(r.stacks or r.ended for r in ranks):
        _wait_and_take(ranks, on_event, 0.1)
    return {r.rank: r.stacks for r in ranks}


def _end(ranks: list[_Rank]) -> None:
    """Ends every rank that still runs, and waits until it is gone."""
    running = [r.process for r in ranks if r.process.is_alive()]
    for process in running:
        process.terminate()
    limit = time.monotonic() + _TERMINATE_S
    for process in running:
        process.join(max(0.0, limit - time.monotonic()))
        if process.is_alive():  # stopped, or holding on to SIGTERM
            process.kill()
    for rank in ranks:
        rank.process.join()
        rank.process.close()
        rank.orders.close()
        if rank.events is not None:
            rank.events.close()
