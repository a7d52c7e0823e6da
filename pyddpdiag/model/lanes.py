"""The interfaces over which a group sums parts of its buckets at once, as a sidecar holds them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupLane:
    """One lane.

    Attributes:
        interface: as the rank that wrote it calls it.
        mbit: its rate in Mbit/s as it sums, which all ranks have agreed on.
        share: of the largest bucket, as it went when this was written, from 0 to 1; before the first, of one of 25 MiB.
    """

    interface: str
    mbit: float | None
    share: float | None
