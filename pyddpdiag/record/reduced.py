"""Which parameters a reducer of DDP reduces: fixed when DDP makes it, and known to it alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def buckets_of(reducer: Any) -> list[list[torch.Tensor]] | None:
    """The parameters of each bucket, at the cost of the gradients' memory once; None: some gradients are sparse."""
    try:
        return [bucket.parameters() for bucket in reducer._get_zeros_like_grad_buckets()]
    except RuntimeError:
        return None


def parameters_of(ddp: DistributedDataParallel) -> list[tuple[str, torch.nn.Parameter]]:
    """Those of a module that its reducer reduces, though some may be frozen at the moment, by name."""
    every = [one for one in ddp.module.named_parameters() if not hasattr(one[1], "_ddp_ignored")]
    if all(one.requires_grad for _, one in every):
        return every
    buckets = buckets_of(ddp.reducer)
    if buckets is None:
        return [(name, one) for name, one in every if one.requires_grad]
    held = {id(one) for bucket in buckets for one in bucket}
    return [(name, one) for name, one in every if id(one) in held]


__all__ = ["buckets_of", "parameters_of"]
