"""A sweep in one rank: does what rank 0 orders; rank 0 also decides, see `conductor`."""

from __future__ import annotations

import atexit
import gc
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag.bench.cases import Case
from pyddpdiag.bench.engine.conductor import Conductor
from pyddpdiag.bench.engine.control import Control, Order
from pyddpdiag.bench.engine.news import Elsewhere, Gathered
from pyddpdiag.bench.engine.others import Others
from pyddpdiag.bench.engine.settings import SweepSettings
from pyddpdiag.bench.engine.worker import Worker, build
from pyddpdiag.train.events import Told
from pyddpdiag.train.interfaces import VARIABLE
from pyddpdiag.train.loop import Session


def sweep_rank(session: Session) -> Any:
    """The job of every rank of a sweep; True at its end. All ranks of the default process group must call it."""
    settings = session.settings
    assert isinstance(settings, SweepSettings)
    # More threads than cores would measure the scheduler.
    torch.set_num_threads(1)
    rank = session.place.rank
    control = Control(rank, settings.timeout_s, session.tell)
    told: list[Any] = [None] * session.place.world_size
    dist.all_gather_object(told, (socket.gethostname(), settings.names))
    seat = Seat(settings, rank, control)
    if rank == 0:
        session.tell(
            Told(
                0,
                Gathered(tuple(t[0] for t in told), tuple(t[1] for t in told), os.environ.get(VARIABLE, "")),
            )
        )
    # A collection in the middle of a round would be measured. It stays off: this process ends soon after.
    gc.collect()
    gc.disable()
    gc.freeze()
    if settings.launched:
        # When all is told and flushed. Taking torch's modules apart, name by name, takes a second of each rank.
        atexit.register(os._exit, 0)
    others = Others()
    if rank == 0:
        Conductor(settings, seat, lambda news: session.tell(Told(0, news))).run()
    else:
        while seat.follow():
            pass
    if settings.launched:
        own = control.total(others.own_s())
        if rank == 0:
            session.tell(Told(0, Elsewhere(others.share(own))))
    return True


class Seat:
    """This rank's place in a sweep: its groups and the cases that are set up."""

    def __init__(self, settings: SweepSettings, rank: int, control: Control) -> None:
        self._settings, self._rank, self._control = settings, rank, control
        self._groups: dict[tuple[tuple[int, ...], int], dist.ProcessGroup] = {}
        self._workers: dict[int, Worker] = {}
        self.source = ""

    def worker(self, case: int) -> Worker:
        """A case that is set up here."""
        return self._workers[case]

    def follow(self) -> bool:
        """Does one order of rank 0's; False if it was the last."""
        order, case, steps = self._control.share(Order.END, 0, 0)
        self._do(order, case, steps)
        return order is not Order.END

    def lead(self, order: Order, case: int = 0, steps: int = 0) -> float:
        """On rank 0: has all ranks do something; returns seconds per step (ROUND), or of the order itself."""
        self._control.share(order, case, steps)
        return self._do(order, case, steps)

    def _do(self, order: Order, index: int, steps: int) -> float:
        if order is Order.END:
            for open_case in list(self._workers):
                self._workers.pop(open_case).close()
            return 0.0
        case = self._settings.cases[index]
        takes_part = self._rank < case.world_size
        begin = time.perf_counter()
        seconds = 0.0
        if order is Order.BUILD:
            group = self._group(case)
            if takes_part:
                with self._control.limited(self._settings.timeout_s, "setting a case up"):
                    self._workers[index] = build(case, group, self._folder(index))
        elif not takes_part:
            pass
        elif order is Order.ROUND:
            with self._control.limited(self._control.patience_s, f"a round of {case.label('')}"):
                seconds = self._workers[index].round(steps)
            self._control.took(seconds * (steps + 1))
        elif order is Order.TRACE:
            with self._control.limited(self._settings.timeout_s, "tracing a case"):
                self.source = self._workers[index].trace(steps)
        elif order is Order.DROP:
            self._workers.pop(index).close()
            gc.collect()
        if order is Order.ROUND:
            seconds = self._control.slowest(seconds)
            # Ranks that only wait must have the same patience.
            self._control.took(seconds * (steps + 1))
            return seconds
        if order is not Order.DROP:
            with self._control.limited(self._settings.timeout_s, "waiting for the others"):
                dist.all_reduce(torch.zeros(1))
        return time.perf_counter() - begin

    def _folder(self, index: int) -> Path:
        return Path(self._settings.trace_folder, str(self._settings.sitting), str(index))

    def _group(self, case: Case) -> dist.ProcessGroup:
        key = (case.picks, case.world_size)
        if key not in self._groups:
            names = ",".join(self._settings.names[place] for place in case.picks)
            with (
                self._control.limited(self._settings.timeout_s, f"connecting over {names or 'the default'}"),
                _environment(names),
            ):
                self._groups[key] = dist.new_group(
                    list(range(case.world_size)), timeout=timedelta(seconds=self._settings.timeout_s)
                )
        return self._groups[key]


@contextmanager
def _environment(interfaces: str) -> Iterator[None]:
    """Gloo reads the variable anew for every group."""
    before = os.environ.get(VARIABLE)
    if interfaces:
        os.environ[VARIABLE] = interfaces
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
