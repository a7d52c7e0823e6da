"""One rank's side of a sweep: it executes rank 0's orders. How rank 0 decides: see `conductor`."""

from __future__ import annotations

import atexit
import gc
import os
import socket
import time
from typing import Any

import psutil
import torch
import torch.distributed as dist

from pyddpdiag.bench.engine.conductor import Conductor
from pyddpdiag.bench.engine.plan import Elsewhere, Gathered, Launch, SweepPlan
from pyddpdiag.bench.engine.rank_worker import Control, RankWorker
from pyddpdiag.ranks.interfaces import VARIABLE
from pyddpdiag.ranks.session import Session


def run_launch(plan: SweepPlan, launch: Launch, session: Session) -> None:
    """One rank's part of a launch; all ranks of the default process group must call it."""
    # More threads than cores would measure the scheduler.
    torch.set_num_threads(1)
    rank = session.place.rank
    control = Control(rank, plan.timeout_s, session.send)
    gathered: list[Any] = [None] * session.place.world_size
    dist.all_gather_object(gathered, (socket.gethostname(), plan.names))
    worker = RankWorker(plan, launch.folder, rank, control)
    if rank == 0:
        session.tell(
            Gathered(
                tuple(t[0] for t in gathered), tuple(t[1] for t in gathered), os.environ.get(VARIABLE, "")
            )
        )
    # A garbage collection would be part of some round's time. It stays off: this process ends soon.
    gc.collect()
    gc.disable()
    gc.freeze()
    if launch.launched:
        # All is sent and flushed; tearing down torch's modules would take each rank a second.
        atexit.register(os._exit, 0)
    others = Others()
    if rank == 0:
        Conductor(plan, launch, worker, session.tell).run()
    else:
        while worker.follow():
            pass
    if launch.launched:
        own = control.total(others.own_s())
        if rank == 0:
            session.tell(Elsewhere(others.share(own)))


class Others:
    """Watches from its creation on."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._own = time.process_time()
        self._idle = _idle_s()

    def own_s(self) -> float:
        """Processor time of this process."""
        return time.process_time() - self._own

    def share(self, ranks_s: float) -> float:
        """The share of all processors that was neither idle nor used by the ranks, 0 to 1.

        `ranks_s`: processor time of all ranks, in seconds; all run on this machine.
        """
        whole = (time.perf_counter() - self._begin) * (psutil.cpu_count() or 1)
        others = whole - (_idle_s() - self._idle) - ranks_s
        return min(1.0, max(0.0, others / whole))


def _idle_s() -> float:
    times = psutil.cpu_times()
    return float(times.idle + getattr(times, "iowait", 0.0))
