"""This rank's place in a sweep: it sets cases up and measures them, as rank 0 orders."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from pyddpdiag.bench.cases import Case
from pyddpdiag.bench.engine.control import Control, Order
from pyddpdiag.bench.engine.plan import SweepPlan
from pyddpdiag.bench.engine.worker import Worker, build
from pyddpdiag.ranks.interfaces import VARIABLE


class RankWorker:
    """This rank's place in a sweep: its groups and the cases that are set up."""

    def __init__(self, plan: SweepPlan, folder: str, rank: int, control: Control) -> None:
        self._plan, self._folder, self._rank, self._control = plan, folder, rank, control
        self._groups: dict[tuple[tuple[int, ...], int], dist.ProcessGroup] = {}
        self._workers: dict[int, Worker] = {}
        self.source = ""

    def worker(self, case: int) -> Worker:
        """A case that is set up here."""
        return self._workers[case]

    def follow(self) -> bool:
        """Executes one order of rank 0; False if it was the last one."""
        order, case, steps = self._control.share(Order.END, 0, 0)
        self._do(order, case, steps)
        return order is not Order.END

    def lead(self, order: Order, case: int = 0, steps: int = 0) -> float:
        """On rank 0: gives all ranks an order; returns seconds per step (ROUND), or the seconds that the order took."""
        self._control.share(order, case, steps)
        return self._do(order, case, steps)

    def _do(self, order: Order, index: int, steps: int) -> float:
        if order is Order.END:
            for open_case in list(self._workers):
                self._workers.pop(open_case).close()
            return 0.0
        case = self._plan.cases[index]
        takes_part = self._rank < case.world_size
        begin = time.perf_counter()
        seconds = 0.0
        if order is Order.BUILD:
            group = self._group(case)
            if takes_part:
                with self._control.limited(self._plan.timeout_s, "setting a case up"):
                    self._workers[index] = build(case, group, Path(self._folder, str(index)))
        elif not takes_part:
            pass
        elif order is Order.ROUND:
            with self._control.limited(self._control.limit_s, f"a round of {case.label('')}"):
                seconds = self._workers[index].round(steps)
            self._control.took(seconds * (steps + 1))
        elif order is Order.TRACE:
            with self._control.limited(self._plan.timeout_s, "tracing a case"):
                self.source = self._workers[index].trace(steps)
        elif order is Order.DROP:
            self._workers.pop(index).close()
            gc.collect()
        if order is Order.ROUND:
            seconds = self._control.slowest(seconds)
            # Ranks that only wait must wait as long.
            self._control.took(seconds * (steps + 1))
            return seconds
        if order is not Order.DROP:
            with self._control.limited(self._plan.timeout_s, "waiting for the others"):
                dist.all_reduce(torch.zeros(1))
        return time.perf_counter() - begin

    def _group(self, case: Case) -> dist.ProcessGroup:
        key = (case.picks, case.world_size)
        if key not in self._groups:
            names = ",".join(self._plan.names[place] for place in case.picks)
            with (
                self._control.limited(self._plan.timeout_s, f"connecting over {names or 'the default'}"),
                _environment(names),
            ):
                self._groups[key] = dist.new_group(
                    list(range(case.world_size)), timeout=timedelta(seconds=self._plan.timeout_s)
                )
        return self._groups[key]


@contextmanager
def _environment(interfaces: str) -> Iterator[None]:
    """Gloo reads the variable again for every group."""
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
