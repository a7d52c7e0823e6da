"""This rank's place in a sweep: it sets cases up and measures them, as rank 0 orders."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum
from pathlib import Path

import torch
import torch.distributed as dist

from pyddpdiag.bench.cases import Case
from pyddpdiag.bench.engine.plan import SweepPlan
from pyddpdiag.bench.engine.worker import Worker, build
from pyddpdiag.ranks.failure import Failure
from pyddpdiag.ranks.interfaces import VARIABLE
from pyddpdiag.ranks.interrupts import deadline
from pyddpdiag.ranks.session import Event

# A round may take this many times the longest so far, and at least this many seconds.
_LIMIT_ROUNDS = 20.0
_LEAST_LIMIT_S = 20.0


class Order(IntEnum):
    """What all ranks do next."""

    END = 0
    BUILD = 1
    ROUND = 2
    TRACE = 3
    DROP = 4


class Control:
    """The default process group as a command channel. Every order reaches every rank, idle ones too.

    `timeout_s`: for orders of unknown length (setting up). `tell`: called with the report of a hang, before this
    process ends itself.
    """

    def __init__(self, rank: int, timeout_s: float, tell: Callable[[Event], None]) -> None:
        self._rank, self._timeout_s, self._tell = rank, timeout_s, tell
        self._longest_s = 0.0

    def share(self, order: Order, case: int, steps: int) -> tuple[Order, int, int]:
        """Returns rank 0's order; what other ranks pass is ignored."""
        order_case_steps = torch.tensor([order, case, steps])
        with self.limited(self.limit_s, "waiting for rank 0's next order"):
            dist.broadcast(order_case_steps, 0)
        first, second, third = order_case_steps.tolist()
        return Order(first), second, third

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values."""
        value = torch.tensor(seconds, dtype=torch.float64)
        with self.limited(self.limit_s, "waiting for the others at the end of a round"):
            dist.all_reduce(value, dist.ReduceOp.MAX)
        return float(value.item())

    def total(self, seconds: float) -> float:
        """The sum of all ranks' values."""
        value = torch.tensor(seconds, dtype=torch.float64)
        with self.limited(self.limit_s, "waiting for the others at the end"):
            dist.all_reduce(value)
        return float(value.item())

    @property
    def limit_s(self) -> float:
        """How long a round may take."""
        return max(_LEAST_LIMIT_S, _LIMIT_ROUNDS * self._longest_s) if self._longest_s else self._timeout_s

    def took(self, seconds: float) -> None:
        """Learns how long a round took."""
        self._longest_s = max(self._longest_s, seconds)

    @contextmanager
    def limited(self, seconds: float, doing: str) -> Iterator[None]:
        """Ends this process if the block takes longer: nothing else interrupts a hang in Gloo."""

        def expired() -> None:
            self._tell(
                Failure(
                    rank=self._rank,
                    kind="SweepTimeout",
                    message=f"stuck for {seconds:.0f} s in {doing}.",
                    timeout=True,
                )
            )
            os._exit(2)

        with deadline(seconds, expired):
            yield


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
