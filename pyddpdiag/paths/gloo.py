"""Whether a process group reduces over Gloo, which is all that the probes time, and with which options."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import NotGlooError


def require(group: dist.ProcessGroup, device: torch.device, rank: int) -> None:
    """Refuses a group that reduces tensors on `device` with another backend.

    Raises:
        NotGlooError: it does; the message names the rank and the backend.
    """
    backend = _native.backend_name(group, str(device))
    if backend != "gloo":
        raise NotGlooError(
            f"rank {rank}: this module's gradients are on '{device}', which its process group reduces with "
            f"{backend or 'no backend'!r}; pyddpdiag times Gloo.",
            hint="init_process_group('gloo'), or DDP(..., process_group=dist.new_group(backend='gloo')).",
        )


def options_of(group: dist.ProcessGroup) -> Any:
    """The options of the backend that reduces on the CPU, as it was made; Any: torch's stubs do not have them."""
    backend = group._get_backend(torch.device("cpu"))
    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it.
    return getattr(backend, "wrapped_pg", backend).options


def ranks_of(group: dist.ProcessGroup) -> list[int]:
    """Its ranks by their numbers in the world; from 0 on for one that torch.distributed does not know (any more)."""
    try:
        return dist.get_process_group_ranks(group)
    except (KeyError, ValueError):
        return list(range(group.size()))
