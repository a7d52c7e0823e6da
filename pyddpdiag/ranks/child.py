"""The process of a launched rank: its entry point, and its watch over the launcher."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from pathlib import Path

from pyddpdiag.ranks import lifetime
from pyddpdiag.ranks.events import Event, Finished, Located
from pyddpdiag.ranks.failure import describe
from pyddpdiag.ranks.interrupts import leave_to_launcher
from pyddpdiag.ranks.lifetime import Assignment, run_rank
from pyddpdiag.ranks.session import Session
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
