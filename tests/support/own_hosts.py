"""Makes ranks of one machine be on several hosts, as far as shared memory goes."""

import os
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from pyddpdiag import _native


def only_own_host(rank: int, hosts: Sequence[int]) -> None:
    """From now on, this rank can open the memory of ranks of its own host only. All ranks call this.

    Args:
        rank: ours.
        hosts: that of each rank.
    """
    processes: list[int] = [0] * len(hosts)
    dist.all_gather_object(processes, os.getpid())
    real = _native.SharedPeer

    def open_peer(name: str, process: int) -> Any:
        if hosts[processes.index(process)] != hosts[rank]:
            raise OSError(2, "no such process here")
        return real(name, process)

    _native.SharedPeer = open_peer  # type: ignore[assignment,misc]
