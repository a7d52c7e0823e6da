"""How many cores a rank may use, so that the ranks of one machine don't fight over them."""

from __future__ import annotations

import os
from collections.abc import Mapping


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_per_rank(local_ranks: int, environ: Mapping[str, str] = os.environ) -> int:
    """OMP_NUM_THREADS if it is set, else an equal share of the cores for each local rank, at least 1."""
    text = environ.get("OMP_NUM_THREADS", "")
    if text.isdecimal() and int(text) > 0:
        return int(text)
    return max(1, usable_cores() // max(1, local_ranks))
