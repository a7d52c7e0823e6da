"""By how much sound links differ, and the evidence that one does not belong to them."""

from __future__ import annotations

from math import log, sqrt
from typing import Final

from pyddpdiag.analyse.bounds import EVIDENCE, confidence
from pyddpdiag.model.findings import Confidence

MBIT: Final = 8e3
"""1 MB in 1 ms, in Mbit/s."""


def slower(busy: float, trip: float | None) -> float:
    """The evidence that a link's rate is low.

    One cause makes a link busy for longer and its queue longer, so both count in the same direction. Queues have many
    reasons, so that the round trip's part is bounded: it proves nothing by itself.

    Args:
        busy: busy time for each byte, in standard deviations above that of other links.
        trip: the usual round trip, likewise; None: not known.
    """
    along = busy if trip is None else (busy + min(trip, sqrt(2 * EVIDENCE))) / sqrt(2)
    return along * along / 2 if along > 0 else 0.0


def farther(trip: float) -> float:
    """The evidence of one deviation: the logarithm of its likelihood over that of a sound link."""
    return trip * trip / 2 if trip > 0 else 0.0


def won(found: float, steps: int) -> Confidence:
    """The confidence of a finding with so much evidence over so many steps: high where it is twice what it must be."""
    return confidence(steps) if found >= 2 * EVIDENCE else "medium"


def deviation(value: float, usual: float, spread: float) -> float:
    """By how many standard deviations it is larger; 0: one of them is not known."""
    return log(value / usual) / spread if value > 0 and usual > 0 else 0.0
