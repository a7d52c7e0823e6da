"""Sums in shared memory without a module and without a reducer."""

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.paths import shared_setup


def begin(ranks: _native.SharedRanks, buffer: torch.Tensor, number: int) -> dist.Work | None:
    """Begins the sum of a buffer that is summed only once."""
    return ranks.add_up(buffer, number, _native.SharedPlace())


def wait(work: dist.Work | None) -> bool:
    """Waits for a sum, unless it was complete when it began. What the wait says of it: true, or it raises."""
    return work is None or bool(work.wait())


def add_up(ranks: _native.SharedRanks, buffer: torch.Tensor, number: int) -> None:
    """Both."""
    wait(begin(ranks, buffer, number))


def shared() -> _native.SharedRanks:
    """What all ranks average their buckets with, which must be shared memory."""
    group = dist.group.WORLD
    assert group is not None
    ranks, found = shared_setup.share(group, "require")
    assert ranks is not None and found == shared_setup.USED
    return ranks
