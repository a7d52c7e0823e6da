"""Threads and cores of a rank's process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import torch
import torch.distributed as dist

from pyddpdiag.paths import gathering, processes

_TOPOLOGY: Final = "/sys/devices/system/cpu/cpu{core}/topology/{what}"
_WAIT_S: Final = 30


def use_threads(number: int) -> str:
    """Lets torch compute with so many threads; what the script had chosen instead, in a sentence, or ""."""
    had = torch.get_num_threads()
    if had == number:
        return ""
    torch.set_num_threads(number)
    return f"the script computes with {had} threads; --threads {number} is used instead."


def pin(group: dist.ProcessGroup) -> str:
    """Keeps this process to its share of the cores, together with the other ranks of its host.

    `group`: all of its ranks call this.

    Returns:
        Why it cannot, or what to add to it, in a sentence; "" if all is well.
    """
    if not hasattr(psutil.Process, "cpu_affinity"):
        return "--pin-ranks is not applied: this system pins no process."
    cores = psutil.Process().cpu_affinity()
    ours = {"host": processes.ours()["machine"] or socket.gethostname(), "cores": cores}
    try:
        with gathering.meet(group, "pinning", json.dumps(ours), within_s=_WAIT_S) as meeting:
            all_ranks = [json.loads(value) for value in meeting.values]
    except RuntimeError as error:
        return f"--pin-ranks is not applied: {error}."
    local = [rank for rank, each in enumerate(all_ranks) if each["host"] == ours["host"]]
    if any(all_ranks[rank]["cores"] != cores for rank in local):
        return "--pin-ranks is not applied: the launcher has given the ranks different cores already."
    share = share_of(in_order(cores), local.index(group.rank()), len(local))
    if not share:
        return f"--pin-ranks is not applied: {len(local)} ranks share {len(cores)} cores."
    _keep_to(share)
    threads = torch.get_num_threads()
    if threads > len(share):
        return (
            f"--pin-ranks gives each rank {len(share)} of the cores for its {threads} threads: "
            f"add --threads {len(share)}."
        )
    return ""


def share_of(cores: Sequence[int], place: int, ranks: int) -> list[int]:
    """The cores of one of so many ranks, equally many for each; empty where there are fewer cores than ranks."""
    each = len(cores) // ranks
    return list(cores[place * each : (place + 1) * each])


def in_order(cores: Sequence[int]) -> list[int]:
    """Cores in an order in which neighbours share the most: the threads of one core, then the cores of a package."""
    return sorted(cores, key=lambda core: (_fact(core, "physical_package_id"), _fact(core, "core_id"), core))


def _fact(core: int, what: str) -> int:
    with suppress(OSError, ValueError):
        return int(Path(_TOPOLOGY.format(core=core, what=what)).read_text(encoding="ascii"))
    return 0


def _keep_to(cores: list[int]) -> None:
    process = psutil.Process()
    process.cpu_affinity(cores)
    # On Linux that is the main thread's alone, and of threads that it begins from now on.
    if hasattr(os, "sched_setaffinity"):
        for thread in process.threads():
            with suppress(OSError):  # it has ended meanwhile
                os.sched_setaffinity(thread.id, cores)
