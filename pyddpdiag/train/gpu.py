"""The use of the ranks' GPUs during a whole training, gathered from all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from pyddpdiag.model import GpuUse
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.record.gpu import watch
from pyddpdiag.train.evaluate import total


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
    if not dist.is_initialized():  # a script may have destroyed the process group
        return (mine,) if mine is not None else ()
    width = 4
    row = [0.0] * width
    if mine is not None:
        known = (mine.utilisation_percent, mine.memory_used_bytes, mine.memory_total_bytes)
        row = [float(mine.samples), *(-1.0 if value is None else float(value) for value in known)]
    # Each rank fills only its own row, so the sum holds all rows.
    before, after = place.rank, place.world_size - place.rank - 1
    sums = total(*[0.0] * (before * width), *row, *[0.0] * (after * width))
    found = []
    for rank in range(place.world_size):
        samples, percent, used, whole = sums[rank * width : (rank + 1) * width]
        if samples > 0:
            found.append(
                GpuUse(
                    rank,
                    int(samples),
                    percent if percent >= 0 else None,
                    int(used) if used >= 0 else None,
                    int(whole) if whole >= 0 else None,
                )
            )
    return tuple(found)
