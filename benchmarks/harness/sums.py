"""All-reduces alone, over Gloo and in memory that the ranks share, in a process that is a rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count

import torch
import torch.distributed as dist

from pyddpdiag.bench.intervals import interleave
from pyddpdiag.ranks.session import Session
from pyddpdiag.record import shared_setup

WAYS = ("Gloo", "shared memory")


def measure(
    session: Session, size: int, buffers: int, ways: Sequence[str], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each way in each round, for so many float32 buffers of `size` bytes that are begun at once."""
    del session
    steps = {way: _step(way, [torch.zeros(size // 4) for _ in range(buffers)]) for way in ways}
    for step in steps.values():
        step()
    return interleave(steps, rounds)


def _step(way: str, buffers: list[torch.Tensor]) -> Callable[[], float]:
    begin = _over_gloo() if way == "Gloo" else _in_shared_memory()

    def step() -> float:
        # Not the time until the other ranks are here too.
        dist.barrier()
        at = time.perf_counter()
        for work in [begin(buffer) for buffer in buffers]:
            work.wait()
        return time.perf_counter() - at

    return step


def _over_gloo() -> Callable[[torch.Tensor], dist.Work]:
    def begin(buffer: torch.Tensor) -> dist.Work:
        work = dist.all_reduce(buffer, async_op=True)
        assert work is not None
        return work

    return begin


def _in_shared_memory() -> Callable[[torch.Tensor], dist.Work]:
    group = dist.group.WORLD
    assert group is not None
    ranks, _ = shared_setup.share(group, "require")
    assert ranks is not None
    numbers = count()
    return lambda buffer: ranks.add_up(buffer, next(numbers))
