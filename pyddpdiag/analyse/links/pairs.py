"""Pairs the ranks' connections, and adds up what each rank sent to each other one."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyddpdiag.analyse.links.connections import Connection
from pyddpdiag.model import LinkStats
from pyddpdiag.model.sidecar import Sidecar

Ends = tuple[str, str, str]


def links(connections: Iterable[Connection], sidecars: Mapping[int, Sidecar]) -> tuple[LinkStats, ...]:
    """The links between ranks, by sender, receiver and addresses.

    A connection is between two ranks if each has one end of it. What carries no gradients is left out: connections to
    the store of the rendezvous, whose port is known.
    """
    every = [each for each in connections if not _is_of_store(each, sidecars)]
    owner = {_ends(each, each.local, each.peer, sidecars): each.rank for each in every}
    found: dict[tuple[int, int, str, str], list[Connection]] = {}
    for each in every:
        peer = owner.get(_ends(each, each.peer, each.local, sidecars))
        if peer is not None and peer != each.rank:
            found.setdefault((each.rank, peer, _ip(each.local), _ip(each.peer)), []).append(each)
    return tuple(_link(key, found[key], sidecars) for key in sorted(found))


def _ends(connection: Connection, one: str, other: str, sidecars: Mapping[int, Sidecar]) -> Ends:
    """The two ends; with the host where they are loopback addresses, which every host has."""
    host = sidecars[connection.rank].host if is_loopback(_ip(one)) else ""
    return one, other, host


def _is_of_store(connection: Connection, sidecars: Mapping[int, Sidecar]) -> bool:
    port = sidecars[connection.rank].environment.get("MASTER_PORT", "")
    return port != "" and port in (_port(connection.local), _port(connection.peer))


def _ip(end: str) -> str:
    return end.rpartition(":")[0]


def _port(end: str) -> str:
    return end.rpartition(":")[2]


def is_loopback(ip: str) -> bool:
    """Whether this is an address of every machine's loopback interface; False if it is no address."""
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return False


def interface_of(ip: str, sidecar: Sidecar) -> str:
    """The name of the interface with this address; "" if it is not known."""
    for name, interface in sidecar.interfaces.items():
        if any(address.partition("/")[0] == ip for address in interface.addresses):
            return name
    return ""


def _link(
    key: tuple[int, int, str, str], parts: Sequence[Connection], sidecars: Mapping[int, Sidecar]
) -> LinkStats:
    rank, peer, local, remote = key
    size = _total(parts, lambda each: each.bytes_acked if each.bytes_acked is not None else each.bytes_sent)
    busy = _total(parts, lambda each: each.busy_ms)
    segments = _total(parts, lambda each: each.segments)
    again = _total(parts, lambda each: each.retransmitted)
    twice = _total(parts, lambda each: each.dsack_dups)
    trips = [each.min_rtt_ms for each in parts if each.min_rtt_ms is not None]
    lossiest = max(parts, key=lambda each: each.retransmitted or 0)
    busiest = max(parts, key=lambda each: each.bytes_acked or each.bytes_sent or 0)
    loss = None
    if segments and again is not None and twice is not None:
        loss = max(0.0, again - twice) / segments
    return LinkStats(
        rank=rank,
        peer=peer,
        interface=interface_of(local, sidecars[rank]),
        peer_interface=interface_of(remote, sidecars[peer]),
        local=local,
        remote=remote,
        loopback=local == remote or (is_loopback(local) and is_loopback(remote)),
        connections=len(parts),
        seconds=max(each.seconds for each in parts),
        bytes=None if size is None else int(size),
        busy_ms_per_mb=busy / (size / 1e6) if busy is not None and size else None,
        min_rtt_ms=min(trips, default=None),
        segments=None if segments is None else int(segments),
        retransmitted=None if again is None else int(again),
        dsack_dups=None if twice is None else int(twice),
        unconfirmed=max(each.unconfirmed or 0 for each in parts),
        loss_fraction=loss,
        # That of the connection with most losses: the others' hardly count.
        floor_rtt_ms=busiest.floor_rtt_ms,
        low_rtt_ms=busiest.low_rtt_ms,
        usual_rtt_ms=busiest.usual_rtt_ms,
        loss_rtt_share=lossiest.loss_rtt_share,
        loss_spread=lossiest.loss_spread,
        loss_scattered=lossiest.loss_scattered,
    )


def _total(parts: Sequence[Connection], reading: Callable[[Connection], float | None]) -> float | None:
    """The sum over the connections; None if one of them does not tell."""
    values = [reading(each) for each in parts]
    return sum(value for value in values if value is not None) if None not in values else None
