"""How what a connection sent again is spread over its readings."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.trace.layout import ConnectionValue
from pyddpdiag.trace.rows import Int64

LOSS_MOMENTS: Final = 3
"""So many times between two readings something must have been sent again."""

MANY_LOSSES: Final = 3
"""For each moment: chance leaves hardly one without, even if segments are lost a few at a time."""

BUSY_BYTES: Final = 50_000
"""Between two readings with less traffic than this the round trip says nothing of the load."""

UNKNOWN: Final = 0xFFFFFFFF
"""What the system does not tell."""


class Losses:
    """What one connection sent again, between each two readings.

    Args:
        words: of its readings, int64[readings, values].
    """

    def __init__(self, words: Int64) -> None:
        total = words[:, ConnectionValue.SEGMENTS_AND_RETRANSMITTED] >> 32 & UNKNOWN
        self._is_known = not (total == UNKNOWN).any()
        self._again = np.diff(total)
        self._loaded = np.diff(words[:, ConnectionValue.BYTES_ACKED]) >= BUSY_BYTES
        self._trip = words[:, ConnectionValue.MIN_RTT_AND_RTT_US] >> 32 & UNKNOWN

    def rtt_share(self) -> float | None:
        """The round trip between readings, weighted by what was sent again there, over its mean where there is traffic.

        None: too few moments with losses.
        """
        before, after = self._trip[:-1], self._trip[1:]
        # A queue fills and overflows between two readings: the longer one has seen more of it.
        trips = np.maximum(before, after).astype(np.float64)
        known = (before != UNKNOWN) & (after != UNKNOWN) & (self._again >= 0)
        loaded = known & self._loaded
        lossy = known & (self._again > 0)
        if np.count_nonzero(lossy) < LOSS_MOMENTS or not loaded.any() or not trips[loaded].mean() > 0:
            return None
        return float(np.average(trips[lossy], weights=self._again[lossy]) / trips[loaded].mean())

    def is_scattered(self) -> bool | None:
        """Whether something was sent again at several moments, or at most of those with traffic; None: not known."""
        if not self._is_known:
            return None
        lossy = self._again > 0
        moments = int(np.count_nonzero(lossy | self._loaded))
        some = int(np.count_nonzero(lossy))
        return some >= LOSS_MOMENTS or 0 < moments < 2 * some

    def spread(self) -> float | None:
        """In which part of the moments with traffic something was sent again; None: too few segments were."""
        again = self._again[self._loaded]
        if not len(again) or again.sum() < MANY_LOSSES * len(again):
            return None
        return float(np.mean(again > 0))
