"""Which parameters a reducer of DDP reduces: fixed when DDP makes it, and known to it alone."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from pyddpdiag import _native


def parameters_of(ddp: DistributedDataParallel) -> list[tuple[str, torch.nn.Parameter]]:
    """Those of a module that its reducer reduces, though some may be frozen at the moment, by name."""
    held = {id(one) for bucket in _native.parameters_of(ddp.reducer) for one in bucket}
    return [(name, one) for name, one in ddp.module.named_parameters() if id(one) in held]


__all__ = ["parameters_of"]
