"""Pairs the ranks' connections, and adds up what each rank sent to each other one."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from pyddpdiag.analyse.bounds import ALL_LATENCY_BYTES, SEVERAL
from pyddpdiag.analyse.links.connections import LEAST_READINGS, Connection, halves
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.trace.layout import ConnectionValue
from pyddpdiag.trace.rows import Int64

Ends = tuple[str, str, str]

_V = ConnectionValue


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
    size, busy = _total(parts, lambda each: each.bytes), _total(parts, lambda each: each.busy_us)
    segments = _total(parts, lambda each: each.turned(_V.SEGMENTS_AND_RETRANSMITTED))
    again = _total(parts, _sent_again)
    twice = _total(parts, lambda each: each.turned(_V.DSACK_DUPS_AND_OUT_OF_ORDER))
    trips = np.concatenate([each.column(_V.MIN_RTT_AND_RTT_US) for each in parts])
    # That of the connection with most losses: the others' hardly count.
    rtt_share, spread, scattered = losses(max(parts, key=lambda each: _sent_again(each) or 0).readings)
    busiest = max(parts, key=lambda each: each.bytes or 0)
    # The first reading may be older than what goes over the link now.
    smooth = busiest.column(_V.MIN_RTT_AND_RTT_US, high=True)[1:]
    smooth = smooth[smooth >= 0]
    enough = len(smooth) >= LEAST_READINGS
    floor, low, usual = np.percentile(smooth / 1e3, (0, 5, 50)).tolist() if enough else (None, None, None)
    return LinkStats(
        rank=rank,
        peer=peer,
        interface=interface_of(local, sidecars[rank]),
        peer_interface=interface_of(remote, sidecars[peer]),
        local=local,
        remote=remote,
        loopback=local == remote or (is_loopback(local) and is_loopback(remote)),
        connections=len(parts),
        seconds=max(max(0, int(np.ptp(each.readings[[0, -1], _V.AT]))) / 1e9 for each in parts),
        bytes=size,
        busy_ms_per_mb=busy / 1e3 / (size / 1e6) if busy is not None and size else None,
        min_rtt_ms=min((trips[trips >= 0] / 1e3).tolist(), default=None),
        segments=segments,
        retransmitted=again,
        dsack_dups=twice,
        unconfirmed=max(each.unconfirmed or 0 for each in parts),
        loss_fraction=max(0.0, again - twice) / segments
        if segments and again is not None and twice is not None
        else None,
        floor_rtt_ms=floor,
        low_rtt_ms=low,
        usual_rtt_ms=usual,
        loss_rtt_share=rtt_share,
        loss_spread=spread,
        loss_scattered=scattered,
    )


def _sent_again(connection: Connection) -> int | None:
    return connection.turned(_V.SEGMENTS_AND_RETRANSMITTED, high=True)


def _total(parts: Sequence[Connection], reading: Callable[[Connection], int | None]) -> int | None:
    """The sum over the connections; None if one of them does not tell."""
    values = [reading(each) for each in parts]
    return sum(value for value in values if value is not None) if None not in values else None


def losses(words: Int64) -> tuple[float | None, float | None, bool | None]:
    """How what was sent again is spread over readings: `loss_rtt_share`, `loss_spread` and `loss_scattered`."""
    total = halves(words[:, _V.SEGMENTS_AND_RETRANSMITTED], high=True)
    trip = halves(words[:, _V.MIN_RTT_AND_RTT_US], high=True)
    again, loaded = np.diff(total), np.diff(words[:, _V.BYTES_ACKED]) >= ALL_LATENCY_BYTES
    if (total < 0).any():
        return None, None, None
    # A queue fills and overflows between two readings: the longer round trip has seen more of it.
    trips = np.maximum(trip[:-1], trip[1:]).astype(np.float64)
    known, lossy = np.minimum(trip[:-1], trip[1:]) >= 0, again > 0
    moments, times = int(np.count_nonzero(lossy | loaded)), int(np.count_nonzero(lossy))
    share = None
    if np.count_nonzero(known & lossy) >= SEVERAL and trips[known & loaded].sum() > 0:
        at_losses = np.average(trips[known & lossy], weights=again[known & lossy])
        share = float(at_losses / trips[known & loaded].mean())
    # By chance alone a moment with so many losses or more is hardly one without.
    many = loaded.any() and again[loaded].sum() >= SEVERAL * np.count_nonzero(loaded)
    spread = float(np.mean(lossy[loaded])) if many else None
    return share, spread, times >= SEVERAL or 0 < moments < 2 * times
