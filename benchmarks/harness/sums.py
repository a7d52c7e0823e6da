"""All-reduces alone, over Gloo, in memory that the ranks share, and by others, in a process that is a rank."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count

import numpy as np
import torch
import torch.distributed as dist

from harness import programs
from harness.rounds import interleave
from pyddpdiag import _native
from pyddpdiag.paths import shared_setup
from pyddpdiag.ranks.session import Session

GLOO, SHARED = "Gloo", "shared memory"
WAYS = (GLOO, SHARED)
# One buffer at a time.
OTHERS = (
    programs.FROM_CPP,
    programs.OPEN_MPI,
    programs.MPICH,
    programs.FROM_PYTHON,
    programs.LIMIT,
)


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


def measure(
    session: Session, size: int, buffers: int, ways: Sequence[str], rounds: int, in_a_row: int = 1
) -> dict[str, list[float]]:
    """Seconds of each way in each round, for so many float32 buffers of `size` bytes that are begun at once.

    Args:
        in_a_row: a round does that so many times, one after the other; the seconds are those of one of them.
    """
    with ExitStack() as stack:
        steps: dict[str, Callable[[], float]] = {}
        for way in ways:
            if way in WAYS:
                steps[way] = _step(way, [torch.zeros(size // 4) for _ in range(buffers)], in_a_row)
            else:
                steps[way] = _program(stack, session, way, size, in_a_row)
        for step in steps.values():
            step()
        return interleave(steps, rounds)


def _program(stack: ExitStack, session: Session, way: str, size: int, in_a_row: int) -> Callable[[], float]:
    """Rank 0 has it run; the others wait for the next turn of their own."""
    program = (
        stack.enter_context(programs.running(way, size, session.place.world_size, in_a_row))
        if session.place.rank == 0
        else None
    )

    def step() -> float:
        dist.barrier()
        return 0.0 if program is None else program.round() / in_a_row

    return step


def _step(way: str, buffers: list[torch.Tensor], in_a_row: int) -> Callable[[], float]:
    sum_up = _over_gloo(buffers) if way == GLOO else _in_shared_memory(buffers)
    together = Together()

    def step() -> float:
        # Whoever waits there for a turn of other ways sleeps; the rest of the way is short.
        dist.barrier()
        together.begin()
        at = time.perf_counter()
        sum_up(in_a_row)
        end = time.perf_counter()
        # From when the first rank begins, by a clock that all processes of a machine share.
        began = torch.tensor(at, dtype=torch.float64)
        dist.all_reduce(began, dist.ReduceOp.MIN)
        return (end - float(began)) / in_a_row

    return step


def _over_gloo(buffers: list[torch.Tensor]) -> Callable[[int], None]:
    def sum_up(times: int) -> None:
        for _ in range(times):
            for work in [dist.all_reduce(buffer, async_op=True) for buffer in buffers]:
                assert work is not None
                work.wait()

    return sum_up


def _in_shared_memory(buffers: list[torch.Tensor]) -> Callable[[int], None]:
    group = dist.group.WORLD
    assert group is not None
    ranks, _ = shared_setup.share(group, "require")
    assert ranks is not None
    # Kept, as those of a GradientReducer are.
    placed = [(buffer, _native.SharedPlace()) for buffer in buffers]
    numbers = count()

    def sum_up(times: int) -> None:
        for _ in range(times):
            works = []
            for buffer, place in placed:
                work = ranks.add_up(buffer, next(numbers), place)
                if work is not None:
                    works.append(work)
            for work in works:
                work.wait()

    return sum_up
