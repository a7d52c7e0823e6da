"""All-reduces alone, over Gloo, in memory that the ranks share, and by others, in a process that is a rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count

import torch
import torch.distributed as dist

from harness import programs
from harness.together import Together
from pyddpdiag import _native
from pyddpdiag.bench.intervals import interleave
from pyddpdiag.ranks.session import Session
from pyddpdiag.record import shared_setup

GLOO, SHARED = "Gloo", "shared memory"
WAYS = (GLOO, SHARED)
# One buffer at a time.
OTHERS = (programs.FROM_CPP, programs.OPEN_MPI, programs.MPICH, programs.LIMIT)


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
            if way in OTHERS:
                steps[way] = _program(stack, session, way, size, in_a_row)
            else:
                steps[way] = _step(way, [torch.zeros(size // 4) for _ in range(buffers)], in_a_row)
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
    begin = _over_gloo() if way == GLOO else _in_shared_memory(len(buffers))
    together = Together()

    def step() -> float:
        # Whoever waits there for a turn of other ways sleeps; the rest of the way is short.
        dist.barrier()
        together.begin()
        at = time.perf_counter()
        for _ in range(in_a_row):
            for work in [begin(buffer, i) for i, buffer in enumerate(buffers)]:
                if work is not None:
                    work.wait()
        return (time.perf_counter() - at) / in_a_row

    return step


Begin = Callable[[torch.Tensor, int], dist.Work | None]
"""Begins the sum of the buffer of this number; None: it is complete already."""


def _over_gloo() -> Begin:
    def begin(buffer: torch.Tensor, _: int) -> dist.Work:
        work = dist.all_reduce(buffer, async_op=True)
        assert work is not None
        return work

    return begin


def _in_shared_memory(buffers: int) -> Begin:
    group = dist.group.WORLD
    assert group is not None
    ranks, _ = shared_setup.share(group, "require")
    assert ranks is not None
    numbers = count()
    # Kept, as those of a GradientReducer are.
    places = [_native.SharedPlace() for _ in range(buffers)]
    return lambda buffer, i: ranks.add_up(buffer, next(numbers), places[i])
