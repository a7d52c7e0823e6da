"""Waits until the traces of all ranks of a run are at a place, whichever machine brings them."""

from __future__ import annotations

import time
from typing import Final

from pyddpdiag.model.run_files import is_trace, rank_of
from pyddpdiag.remote.place import Place

LIMIT_S: Final = 60.0
"""From when this machine brought its own: commands of one run end at about the same time on all machines."""

_LOOK_S: Final = 1.0


def wait_for_ranks(place: Place, world_size: int, attempt: str = "", limit_s: float = LIMIT_S) -> list[int]:
    """The ranks whose whole traces are not there when the time is over; none: all are.

    `attempt`: the folder of the attempt; "" is the first. `limit_s`: after which nobody waits any more; seconds.

    Raises:
        RemoteError: the place cannot be read.
    """
    end = time.monotonic() + limit_s
    while True:
        there = {rank_of(name) for name in place.sizes(attempt) if is_trace(name)}
        missing = [rank for rank in range(world_size) if rank not in there]
        if not missing or time.monotonic() >= end:
            return missing
        time.sleep(min(_LOOK_S, max(0.0, end - time.monotonic())))
