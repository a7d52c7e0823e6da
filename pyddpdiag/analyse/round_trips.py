"""How long a round of the ring can take at most, by the round trips of the connections."""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.analyse.bounds import ROUND_MS, SLOW_START
from pyddpdiag.model import LinkStats


def most_round_ms(links: Sequence[LinkStats]) -> float | None:
    """The longest of the connections' shortest round trips, and `ROUND_MS`; None where no trip is known."""
    trips = [link.floor_rtt_ms for link in links if link.floor_rtt_ms is not None]
    return max(trips) + ROUND_MS if trips else None


def most_latency_ms(links: Sequence[LinkStats]) -> float | None:
    """What an all-reduce over all ranks of these links takes at most besides its bytes; None: not known."""
    most, ranks = most_round_ms(links), len({link.rank for link in links})
    return None if most is None or ranks < 2 else 2 * (ranks - 1) * SLOW_START * most


__all__ = ["ROUND_MS", "SLOW_START", "most_latency_ms", "most_round_ms"]
