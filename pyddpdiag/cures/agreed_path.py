"""Whether all ranks can sum a module's buckets another way: asked before one sets it up and waits for the others."""

from __future__ import annotations

import torch.distributed as dist

from pyddpdiag.paths import gathering


def why_not(group: dist.ProcessGroup, ours: str) -> str:
    """Why not all ranks can; empty: they can.

    Args:
        group: over Gloo; all of its ranks call this, for the same modules in the same order.
        ours: why this rank cannot; empty: it can.
    """
    try:
        with gathering.meet(group, "cures", " ".join(ours.split())) as meeting:
            brought = meeting.values
    except RuntimeError as error:
        return f"not all ranks could agree on it: {error}"
    if ours:
        return ours
    return next((f"rank {rank} cannot: {why}" for rank, why in enumerate(brought) if why), "")
