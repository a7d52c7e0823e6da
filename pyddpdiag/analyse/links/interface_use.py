"""Which interfaces the ranks were to use, and which they do use."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, MATTERS_SHARE, TWICE
from pyddpdiag.analyse.links.link_faults import MBIT
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.sidecar import Sidecar

VARIABLE: Final = "GLOO_SOCKET_IFNAME"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Detour:
    """Rank `rank` sends over `used`, and `better` were better; the speeds are nominal, None where not known.

    `advised` is what to ask Gloo for.
    """

    rank: int
    used: str
    better: str
    why: Literal["not asked for", "unused", "slower", "idle"]
    advised: str
    used_mbit: int | None = None
    better_mbit: int | None = None


def asked_for(sidecars: Mapping[int, Sidecar]) -> dict[int, tuple[str, ...]]:
    """The interfaces that each rank was set to use, in this order; ranks without such an order are left out."""
    found = {}
    for rank, sidecar in sidecars.items():
        names = tuple(
            name.strip() for name in sidecar.environment.get(VARIABLE, "").split(",") if name.strip()
        )
        if names:
            found[rank] = names
    return found


def detours(carrying: Sequence[LinkStats], sidecars: Mapping[int, Sidecar]) -> tuple[Detour, ...]:
    """Where traffic takes another interface than it should, by rank.

    Args:
        carrying: the links that carry the gradients.
    """
    asked = asked_for(sidecars)
    found = []
    for rank in sorted({link.rank for link in carrying}):
        mine = [link for link in carrying if link.rank == rank]
        bytes_by_name: dict[str, int] = {}
        for link in mine:
            bytes_by_name[link.interface] = bytes_by_name.get(link.interface, 0) + (link.bytes or 0)
        # Traffic on an interface whose name is not known could be anywhere, and lanes share it out themselves.
        if "" in bytes_by_name or any(group.lanes for group in sidecars[rank].groups.values()):
            continue
        used = max(bytes_by_name, key=lambda name: bytes_by_name[name])
        names, whole = asked.get(rank, ()), sum(bytes_by_name.values())
        nominal = sidecars[rank].interfaces[used].speed_mbit if used in sidecars[rank].interfaces else None
        # What a rank's busiest link carries while it has something to send.
        busy = max(mine, key=lambda link: link.bytes or 0).busy_ms_per_mb
        rate = MBIT / busy if busy else None
        if names and used not in names:
            found.append(Detour(rank, used, ",".join(names), "not asked for", ",".join(names)))
        elif idle := [name for name in names if bytes_by_name.get(name, 0) < MATTERS_SHARE * whole]:
            found.append(Detour(rank, used, ",".join(idle), "unused", ",".join(names)))
        elif not names and nominal and (faster := _reaching(TWICE * nominal, used, mine, sidecars)):
            speed = sidecars[rank].interfaces[faster].speed_mbit
            found.append(Detour(rank, used, faster, "slower", faster, nominal, speed))
        # An interface that could carry more than the one in use does, which is far below its own speed.
        elif (
            rate
            and rate < HEALTHY_SHARE * (nominal or 0)
            and (other := _reaching(rate / HEALTHY_SHARE, used, mine, sidecars))
        ):
            found.append(Detour(rank, used, other, "idle", other, round(rate)))
    return tuple(found)


def _reaching(
    least_mbit: float, used: str, mine: Sequence[LinkStats], sidecars: Mapping[int, Sidecar]
) -> str:
    """The fastest other interface of at least this speed that reaches all peers; "" if there is none."""
    interfaces = sidecars[mine[0].rank].interfaces
    for name, other in sorted(interfaces.items(), key=lambda each: -(each[1].speed_mbit or 0)):
        if name == used or not other.up or (other.speed_mbit or 0) < least_mbit:
            continue
        if all(_reaches(other.addresses, sidecars[link.peer], least_mbit) for link in mine):
            return name
    return ""


def _reaches(own: Sequence[str], peer: Sidecar, least_mbit: float) -> bool:
    """Whether the peer has a fast interface in one of the networks of these addresses.

    Not by the same address: bridges for containers have one on every host, and join none.
    """
    networks = _networks(own)
    return any(
        other.up
        and (other.speed_mbit or 0) >= least_mbit
        and networks & _networks([address for address in other.addresses if address not in own])
        for other in peer.interfaces.values()
    )


def _networks(addresses: Sequence[str]) -> set[Network]:
    """The networks of addresses, without those that every machine has."""
    found: set[Network] = set()
    for address in addresses:
        try:
            interface = ipaddress.ip_interface(address)
        except ValueError:
            continue
        if "/" in address and not interface.ip.is_loopback and not interface.ip.is_link_local:
            found.add(interface.network)
    return found
