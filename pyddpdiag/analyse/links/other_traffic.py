"""What else than the ranks' own connections goes over the interfaces that they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyddpdiag.model import LinkStats
from pyddpdiag.model.sidecar import Sidecar

HEADERS: Final = 1.1
"""An interface also counts headers and confirmations: at most a tenth of what large segments carry."""

LEAST_SHARE: Final = 0.25
"""Less beside the ranks' own bytes makes no link slow that is not slow anyway."""

LEAST_BYTES: Final = 5_000_000


@dataclass(frozen=True)
class OtherTraffic:
    """Other programs' bytes over an interface of rank `rank`'s host, one way, beside the ranks' `own`."""

    rank: int
    interface: str
    sends: bool
    other: int
    own: int


def other_traffic(links: Sequence[LinkStats], sidecars: Mapping[int, Sidecar]) -> tuple[OtherTraffic, ...]:
    """Where other programs send or receive at least a quarter of what the ranks do, most of it first.

    Ranks that share an interface share its counters: their bytes are added.

    Args:
        links: all links between ranks.
        sidecars: the ranks' settings.
    """
    own: dict[tuple[str, str, str, bool], int] = {}
    rank_of: dict[tuple[str, str, str, bool], int] = {}
    for link in links:
        ends = (
            (link.rank, link.interface, link.local, True),
            (link.peer, link.peer_interface, link.remote, False),
        )
        for rank, name, address, sends in ends:
            if name and not link.loopback and link.bytes is not None and rank in sidecars:
                key = (sidecars[rank].host, name, address, sends)
                own[key] = own.get(key, 0) + link.bytes
                rank_of[key] = min(rank_of.get(key, rank), rank)
    found = []
    for key, size in own.items():
        carried = sidecars[rank_of[key]].traffic.get(key[1], {}).get("sent" if key[3] else "received")
        other = 0 if carried is None else int(carried - HEADERS * size)
        if other >= max(LEAST_BYTES, LEAST_SHARE * size):
            found.append(OtherTraffic(rank_of[key], key[1], key[3], other, size))
    return tuple(sorted(found, key=lambda each: -each.other))


__all__ = ["OtherTraffic", "other_traffic"]
