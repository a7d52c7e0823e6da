"""Lets the ranks of one host begin at the same moment.

They leave a barrier of Gloo up to a tenth of a millisecond apart, which is more than a small sum takes.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial

import numpy as np
import torch.distributed as dist

# As in benchmarks/programs/ranks.hpp.
COMPUTES_S = 0.01
# On Linux, time.sleep(0) waits for a timer, which takes 0.07 ms.
_let_others_run = os.sched_yield if hasattr(os, "sched_yield") else partial(time.sleep, 0)


class Together:
    """A counter per rank in a file that all of them have mapped. All ranks make it at the same point."""

    def __init__(self) -> None:
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        folder = tempfile.TemporaryDirectory() if self._rank == 0 else None
        names = [f"{folder.name}/together" if folder is not None else None]
        if folder is not None:
            np.zeros(self._ranks * 8, dtype=np.int64).tofile(f"{folder.name}/together")
        dist.broadcast_object_list(names, src=0)
        # 64 bytes apart: counters in one cache line would slow each other down. Read without numpy, whose calls take
        # longer than the smallest sums.
        self._counters = memoryview(np.memmap(str(names[0]), dtype=np.int64, mode="r+"))[::8]
        self._others = [rank for rank in range(self._ranks) if rank != self._rank]
        self._rounds = 0
        dist.barrier()
        if folder is not None:
            folder.cleanup()

    def begin(self) -> None:
        """Returns as soon as all ranks have called it, and have computed for some milliseconds, as in training.

        Meanwhile the scheduler gives each a core of its own, if there are enough. Those that have just been woken may
        be on the same one.
        """
        until = time.perf_counter() + COMPUTES_S
        while time.perf_counter() < until:
            pass
        self._rounds += 1
        self._counters[self._rank] = self._rounds
        for other in self._others:
            while self._counters[other] < self._rounds:
                # Others may need this core to get here.
                _let_others_run()
