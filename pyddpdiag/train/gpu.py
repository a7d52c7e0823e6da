"""The use of the ranks' GPUs during a whole training, gathered from all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.record.gpu import watch


@contextmanager
def watched(device: torch.device, tell: Callable[[str], None]) -> Iterator[Callable[[int], GpuUse | None]]:
    """Watches the device during the block; gives a function that tells a rank's use after it.

    On the CPU nothing is done, and nothing is imported.

    Args:
        device: that the rank trains on.
        tell: takes a sentence if the use cannot be sampled.
    """
    begun = watch(device, tell)
    try:
        yield begun.use if begun is not None else lambda rank: None
    finally:
        if begun is not None:
            begun.stop()


def gather(mine: GpuUse | None, place: Place) -> tuple[GpuUse, ...]:
    """The use of all ranks' GPUs, in the order of ranks without those that have none; all ranks must call it."""
    found: list[GpuUse | None] = [mine]
    if dist.is_initialized():  # a script may have destroyed the process group
        found *= place.world_size
        dist.all_gather_object(found, mine)
    return tuple(use for use in found if use is not None)
