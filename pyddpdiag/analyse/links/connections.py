"""The ranks' readings of their TCP connections, with their names, paired: what each rank sent to each other one."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import ALL_LATENCY_BYTES, SEVERAL
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.output import clean
from pyddpdiag.trace.layout import ConnectionValue, Flag, Kind, Records
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64

MBIT: Final = 8e3
"""1 MB in 1 ms, in Mbit/s."""

LISTED: Final = 4096
"""Connections of one rank; a recorder follows 256 at a time. And readings of one: the first, and the last ones."""

MOST_PARTS: Final = 4
"""Of a connection's name."""

LEAST_READINGS: Final = 4
"""Of a connection's round trip, for its least and its usual one to mean something."""

_HALF: Final = 0xFFFFFFFF

_V = ConnectionValue


@dataclass(frozen=True, eq=False)
class Connection:
    """A TCP connection of one rank's process.

    Attributes:
        rank: whose it is.
        local, peer: its ends, "IP:PORT".
        readings: [readings, `ConnectionValue`] int64, in the order of time.
        unconfirmed: segments in flight in the last reading, if the peer has confirmed nothing since soon after the last
            operation that ended as it should; None: it has, or the system does not tell.
    """

    rank: int
    local: str
    peer: str
    readings: Int64
    unconfirmed: int | None = None

    def grown(self, value: ConnectionValue) -> int | None:
        """How much a counter grew; None: the system does not tell, or it was not the same connection's."""
        first, last = self.readings[[0, -1], value].tolist()
        return last - first if 0 <= first <= last else None

    def between(self, since_ns: int, until_ns: int) -> Connection:
        """The same by what was read in a time of its rank's clock."""
        at = self.readings[:, _V.AT]
        some = self.readings[(since_ns <= at) & (at <= until_ns)]
        return replace(self, readings=some if len(some) else self.readings[:1])

    def column(self, value: ConnectionValue, *, high: bool = False) -> Int64:
        """One half of a column of two; -1: not available."""
        return halves(self.readings[:, value], high=high)

    def turned(self, value: ConnectionValue, *, high: bool = False) -> int | None:
        """How much a counter of 32 bits grew, which may have begun again at 0."""
        first, last = self.column(value, high=high)[[0, -1]].tolist()
        return (last - first) & _HALF if min(first, last) >= 0 else None

    @property
    def bytes(self) -> int | None:
        """That the peer has confirmed; where the system does not count those, that were sent."""
        acked = self.grown(_V.BYTES_ACKED)
        return self.grown(_V.BYTES_SENT) if acked is None else acked

    @property
    def busy_us(self) -> int | None:
        """The time in which something was to be sent or not yet confirmed, without the times between two readings in
        which nothing was confirmed: a link that is down, or cut, is not slow."""
        whole, acked = self.grown(_V.BUSY_US), self.readings[:, _V.BYTES_ACKED]
        if whole is None or (acked < 0).any():
            return whole
        return whole - int(np.diff(self.readings[:, _V.BUSY_US])[np.diff(acked) == 0].sum())


def halves(words: Int64, *, high: bool = False) -> Int64:
    """The low or the high halves of words; -1: not available."""
    half = words >> (32 if high else 0) & _HALF
    return np.asarray(np.where(half == _HALF, -1, half))


def rank_connections(trace: RankTrace, until_ns: int) -> tuple[Connection, ...]:
    """The connections of one rank that have a name and a reading until then, in the order of their ids."""
    records = trace.of_kind(Kind.CONNECTION)
    is_name = (records["flags"] & Flag.NAME) > 0
    names = _names(records[is_name])
    readings = records[~is_name]
    # By connection; within one, as they were recorded.
    readings = readings[np.argsort(readings["reference"], kind="stable")]
    later = readings[readings["times"][:, _V.AT] > until_ns]
    readings = readings[readings["times"][:, _V.AT] <= until_ns]
    ids, begin = np.unique(readings["reference"], return_index=True)
    found = []
    for key, mine in list(zip(ids.tolist(), np.split(readings["times"], begin[1:]), strict=False))[:LISTED]:
        local, _, peer = names.get(key, "").partition("|")
        if local and peer:
            some = np.concatenate([mine[:1], mine[1:][1 - LISTED :]])
            after = _unconfirmed(later[later["reference"] == key])
            found.append(Connection(trace.rank, local, peer, some, after))
    return tuple(found)


def _unconfirmed(later: Records) -> int | None:
    """What was on its way in the last of the readings after the last sound operation, if nothing of it arrived.

    By the first of them the peer may have taken a part.
    """
    acked = later["times"][:, _V.BYTES_ACKED]
    if len(acked) < LEAST_READINGS or acked[0] < 0 or acked[-1] != acked[0]:
        return None
    return max(0, int(halves(later["sequence"][-1:].astype(np.int64))[0])) or None


def _names(parts: Records) -> dict[int, str]:
    """Names by id, put together from their parts; of those written again the newest."""
    # A damaged file costs no more than so many.
    some = parts[parts["index"] < MOST_PARTS][-LISTED * MOST_PARTS :]
    keys = zip(some["reference"].tolist(), some["index"].tolist(), strict=True)
    texts = dict(zip(keys, some["text"].tolist(), strict=True))
    whole: dict[int, str] = {}
    for key in {key for key, _ in texts}:
        pieces = takewhile(bool, (texts.get((key, index)) for index in range(MOST_PARTS)))
        whole[key] = clean(b"".join(piece for piece in pieces if piece).decode("ascii", "replace"), 256)
    return whole


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
