"""What else than the ranks' own connections goes over the interfaces that they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyddpdiag.analyse.bounds import HEADERS, LARGE_SHARE, LEAST_BYTES, MOST
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.words import size


@dataclass(frozen=True)
class OtherTraffic:
    """Other programs' bytes over an interface of rank `rank`'s host, one way, beside the ranks' `own`.

    `peer`: the rank at whose host the other end is; None: it is none of the run's hosts, or not known.
    """

    rank: int
    interface: str
    sends: bool
    other: int
    own: int
    peer: int | None = None

    @property
    def words(self) -> str:
        """A sentence."""
        return (
            f"Other connections than the ranks' {'send' if self.sends else 'receive'} {size(self.other)} over "
            f"{self.interface} of rank {self.rank}'s host meanwhile, the ranks {size(self.own)}."
        )

    @property
    def advice(self) -> str:
        """What to do about it."""
        return (
            f"Find what uses {self.interface} on the host of rank {self.rank} (Linux: ss -tip, nethogs), be it another "
            "program or this training's own files, and give it another interface, another time or a limit."
        )


def single_flow(found: Sequence[OtherTraffic]) -> OtherTraffic | None:
    """What stands out of `other_traffic`: one sender and one receiver at most; None: nothing, or several do.

    Where all ranks read their data over the network, say, none of them stands out.
    """
    ends = [each for each in found if each.other >= MOST * found[0].other]
    senders, receivers = [each for each in ends if each.sends], [each for each in ends if not each.sends]
    if not ends or len(senders) > 1 or len(receivers) > 1:
        return None
    return replace(senders[0], peer=receivers[0].rank if receivers else None) if senders else receivers[0]


def other_traffic(links: Sequence[LinkStats], sidecars: Mapping[int, Sidecar]) -> tuple[OtherTraffic, ...]:
    """Where other programs send or receive at least a quarter of what the ranks do, most of it first.

    Ranks that share an interface share its counters: their bytes are added.
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
    for key, carried_own in own.items():
        carried = sidecars[rank_of[key]].traffic.get(key[1], {}).get("sent" if key[3] else "received")
        other = 0 if carried is None else int(carried - HEADERS * carried_own)
        if other >= max(LEAST_BYTES, LARGE_SHARE * carried_own):
            found.append(OtherTraffic(rank_of[key], key[1], key[3], other, carried_own))
    return tuple(sorted(found, key=lambda each: -each.other))
