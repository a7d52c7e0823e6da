"""One launched rank as its launcher sees it: its process, the pipes to it, and what it has said so far."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from pyddpdiag.ranks import interrupts, lifetime
from pyddpdiag.ranks.failure import Failure, Trouble, describe
from pyddpdiag.ranks.interrupts import leave_to_launcher
from pyddpdiag.ranks.lifetime import Assignment, run_rank
from pyddpdiag.ranks.session import Event, Finished, Joined, Located, Session
from pyddpdiag.system.frames import main_frame
from pyddpdiag.system.threads import start_beside

#: The only order that a launcher gives: report your stacks.
LOCATE = "locate"


@dataclass(frozen=True)
class Lines:
    """The two pipes between a rank and its launcher, and the folder to remove if the launcher is gone."""

    events: Connection
    orders: Connection
    rendezvous_folder: str


class Teller:
    """Sends events to the launcher, from any thread."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Sends one event; does nothing if the launcher is gone, which `_watch` handles."""
        with self._lock:
            try:
                self._pipe.send(event)
            except OSError:
                return


def main(assignment: Assignment, job: Callable[[Session], object], lines: Lines) -> None:
    """Entry point of the spawned process. Does not return after a failure."""
    leave_to_launcher()
    rank = assignment.place.rank
    tell = Teller(lines.events)
    watch = threading.Thread(target=_watch, args=(rank, lines, tell), name="pyddpdiag-watch", daemon=True)
    start_beside(watch)
    try:
        result = run_rank(assignment, job, tell)
    except BaseException as error:
        tell(describe(error, rank))
        _flush()
        # Destroying the process group could wait for ranks that are gone or stuck.
        os._exit(1)
    tell(Finished(rank, result))
    _flush()


def _watch(rank: int, lines: Lines, tell: Teller) -> None:
    """Answers the launcher, and ends this process as soon as the launcher is gone, for whatever reason."""
    parent = parent_process()
    sentinels = [parent.sentinel] if parent is not None else []
    while True:
        ready = connection.wait([lines.orders, *sentinels])
        if lines.orders in ready:
            try:
                order = lines.orders.recv()
            except (EOFError, OSError):
                break
            if order == LOCATE:
                tell(Located(rank, _stacks()))
        elif ready:
            break
    shutil.rmtree(lines.rendezvous_folder, ignore_errors=True)
    os._exit(1)


def _stacks() -> str:
    """The stack of the main thread, innermost call last, without our own outer frames."""
    frame = main_frame()
    if frame is None:
        return ""
    lines = traceback.format_stack(frame)
    ours = str(Path(lifetime.__file__))
    below = max((i for i, line in enumerate(lines) if ours in line), default=-1)
    return "".join(lines[below + 1 :]).rstrip()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue


_TERMINATE_S = 2.0


class RankProcess:
    """A rank's process.

    Attributes:
        rank: its number.
        joined: its process group is up.
        finished: its final event, None as long as its job is not done.
        trouble: why it is in trouble; None if it is not.
        stacks: its threads' stacks, if it was asked and answered.
        ended: the process is gone.
    """

    def __init__(self, rank: int, process: SpawnProcess, events: Connection, orders: Connection) -> None:
        self.rank = rank
        self.joined = False
        self.finished: Finished | None = None
        self.trouble: Trouble | None = None
        self.stacks = ""
        self.ended = False
        self._process = process
        self._events: Connection | None = events
        self._orders = orders

    @property
    def waited(self) -> list[Connection | int]:
        """Objects to wait on: one becomes ready when anything happens to this rank."""
        found: list[Connection | int] = [] if self._events is None else [self._events]
        return found if self.ended else [*found, self._process.sentinel]

    def take(self) -> list[Event]:
        """Returns all events that have arrived, without waiting, and notes what they say about this rank."""
        # A rank sends its last events before it ends, so read them after its end was seen.
        gone = not self._process.is_alive()
        arrived = self._drain()
        for event in arrived:
            self._note(event)
        if gone and not self.ended:
            self.ended = True
            if self.finished is None and self.trouble is None:
                self.trouble = Trouble(self.rank, time.monotonic(), exit_code=self._process.exitcode)
        return arrived

    def ask_where(self) -> None:
        """Asks the rank for its stacks; it may not be able to answer."""
        with suppress(OSError):
            self._orders.send(LOCATE)

    def terminate(self) -> None:
        """Asks the process to end, if it still runs."""
        if self._process.is_alive():
            self._process.terminate()

    def close(self, limit: float) -> None:
        """Ends the process by force if it still runs at `limit` (monotonic seconds), and waits until it is gone."""
        self._process.join(max(0.0, limit - time.monotonic()))
        if self._process.is_alive():  # stopped, or holding on to SIGTERM
            self._process.kill()
        self._process.join()
        self._process.close()
        self._orders.close()
        if self._events is not None:
            self._events.close()

    def _drain(self) -> list[Event]:
        arrived: list[Event] = []
        while self._events is not None:
            try:
                if not self._events.poll():
                    break
                arrived.append(self._events.recv())
            except (EOFError, OSError):
                self._events.close()
                self._events = None
        return arrived

    def _note(self, event: Event) -> None:
        if isinstance(event, Joined):
            self.joined = True
        elif isinstance(event, Finished):
            self.finished = event
        elif isinstance(event, Located):
            self.stacks = event.stacks
        elif isinstance(event, Failure) and self.trouble is None:
            self.trouble = Trouble(self.rank, time.monotonic(), failure=event)


def start(assignment: Assignment, job: Callable[[Session], object], folder: Path) -> RankProcess:
    """Spawns the process of a rank; it removes `folder` if this process is gone before it."""
    context = multiprocessing.get_context("spawn")
    events_in, events_out = context.Pipe(duplex=False)
    orders_in, orders_out = context.Pipe(duplex=False)
    rank = assignment.place.rank
    lines = Lines(events_out, orders_in, str(folder))
    process = context.Process(target=main, args=(assignment, job, lines), name=f"pyddpdiag-rank-{rank}")
    with interrupts.held_back():
        process.start()
    # Only the rank may hold its ends, or their closing would not reveal its death.
    events_out.close()
    orders_in.close()
    return RankProcess(rank, process, events_in, orders_out)


def end(ranks: Sequence[RankProcess]) -> None:
    """Ends every rank that still runs, and waits until it is gone."""
    for rank in ranks:
        rank.terminate()
    limit = time.monotonic() + _TERMINATE_S
    for rank in ranks:
        rank.close(limit)
