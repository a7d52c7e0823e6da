"""Whether all ranks can sum a module's buckets another way: asked before one sets it up and waits for the others."""

from __future__ import annotations

import time
import weakref

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore  # torch.distributed does not export it to mypy

from pyddpdiag.paths import gathering, gloo

# For how many modules of a group the ranks have asked: the same on all of them.
_asked: weakref.WeakKeyDictionary[dist.ProcessGroup, int] = weakref.WeakKeyDictionary()


def why_not(group: dist.ProcessGroup, ours: str) -> str:
    """Why not all ranks can; empty: they can.

    Args:
        group: over Gloo; all of its ranks call this, for the same modules in the same order.
        ours: why this rank cannot; empty: it can.
    """
    number = _asked[group] = _asked.get(group, 0) + 1
    store = PrefixStore(f"pyddpdiag/cures/{number}", group.get_group_store())
    until = time.monotonic() + float(gloo.options_of(group)._timeout.total_seconds())
    try:
        with gathering.meet(store, " ".join(ours.split()), group, until) as meeting:
            brought = meeting.values
    except RuntimeError as error:
        return f"not all ranks could agree on it: {error}"
    if ours:
        return ours
    return next((f"rank {rank} cannot: {why}" for rank, why in enumerate(brought) if why), "")
