"""What one rank's readings of its TCP connections come to: the names, and the differences over the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import SEVERAL
from pyddpdiag.analyse.links.noise import LOADED_BYTES, TOGETHER
from pyddpdiag.output import clean
from pyddpdiag.trace.layout import ConnectionValue, Flag, Kind, Records
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64

LISTED: Final = 4096
"""Connections of one rank; a recorder follows 256 at a time."""

MOST_PARTS: Final = 4
"""Of a connection's name."""

LEAST_READINGS: Final = 4
"""Of a connection's round trip, for its least and its usual one to mean something."""


_HALF: Final = 0xFFFFFFFF


MOST_MOMENTS: Final = 4096
"""Of a connection's course; those of a longer run are further apart."""


@dataclass(frozen=True, eq=False)
class Course:
    """How a connection's counters grew: `at_ns` on its rank's clock; since its begin `busy_us`, `bytes` and segments
    sent `again`, of 32 bits, -1: not known."""

    at_ns: Int64
    busy_us: Int64
    bytes: Int64
    again: Int64


@dataclass(frozen=True)
class Connection:
    """A TCP connection of one rank's process, from its first reading to its last.

    `local` and `peer` are "IP:PORT". Amounts are differences between the two readings; None: the system does not tell.
    How losses are spread, and the round trips: as in `LinkStats`.

    Attributes:
        seconds: from the first to the last.
        bytes_sent: with what was sent again, where the system counts so.
        bytes_acked: that the peer has confirmed.
        busy_ms: time in which something was to be sent or not yet confirmed, without the times between two readings in
            which nothing was confirmed: a link that is down, or cut, is not slow.
        segments: with data, sent; with those that were sent again.
        retransmitted: segments sent again.
        dsack_dups: of those, how many the peer had already.
        unconfirmed: segments in flight in the last reading, if the peer has confirmed nothing since soon after the last
            operation that ended as it should; None: it has, or the system does not tell.
        course: its counters over time; None: the system does not tell.
    """

    rank: int
    local: str
    peer: str
    seconds: float
    bytes_sent: int | None = None
    bytes_acked: int | None = None
    busy_ms: float | None = None
    segments: int | None = None
    retransmitted: int | None = None
    dsack_dups: int | None = None
    loss_rtt_share: float | None = None
    loss_spread: float | None = None
    loss_scattered: bool | None = None
    min_rtt_ms: float | None = None
    floor_rtt_ms: float | None = None
    low_rtt_ms: float | None = None
    usual_rtt_ms: float | None = None
    unconfirmed: int | None = None
    course: Course | None = field(default=None, compare=False)


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
    ends = [*begin[1:].tolist(), len(readings)][: len(ids)]
    found = []
    for key, first, end in list(zip(ids.tolist(), begin.tolist(), ends, strict=True))[:LISTED]:
        local, _, peer = names.get(key, "").partition("|")
        if local and peer:
            after = later[later["reference"] == key]
            found.append(_connection(trace.rank, local, peer, readings[first:end], _unconfirmed(after)))
    return tuple(found)


def courses_of(connections: Iterable[Connection]) -> dict[tuple[int, str, str], list[Course]]:
    """The known courses of each link, by its rank and the addresses of both ends."""
    found: dict[tuple[int, str, str], list[Course]] = {}
    for each in connections:
        if each.course is not None:
            ends = each.local.rpartition(":")[0], each.peer.rpartition(":")[0]
            found.setdefault((each.rank, *ends), []).append(each.course)
    return found


def _unconfirmed(later: Records) -> int | None:
    """What was on its way in the last of the readings after the last sound operation, if nothing of it arrived.

    By the first of them the peer may have taken a part.
    """
    acked = later["times"][:, _V.BYTES_ACKED]
    if len(acked) < LEAST_READINGS or acked[0] < 0 or acked[-1] != acked[0]:
        return None
    return _low(int(later["sequence"][-1])) or None


def _names(parts: Records) -> dict[int, str]:
    """Names by id, put together from their parts; of those written again the newest."""
    texts: dict[tuple[int, int], bytes] = {}
    # Newest first, so that a damaged file costs no more than its first so many.
    for key, index, text in zip(
        parts["reference"][::-1].tolist(),
        parts["index"][::-1].tolist(),
        parts["text"][::-1].tolist(),
        strict=True,
    ):
        if len(texts) >= LISTED * MOST_PARTS:
            break
        if index < MOST_PARTS:
            texts.setdefault((key, index), text)
    whole: dict[int, str] = {}
    for key in {key for key, _ in texts}:
        raw = b""
        for index in range(MOST_PARTS):
            raw += texts.get((key, index), b"")
            if (key, index) not in texts:
                break
        whole[key] = clean(raw.decode("ascii", "replace"), 256)
    return whole


def _connection(rank: int, local: str, peer: str, readings: Records, unconfirmed: int | None) -> Connection:
    words = readings["times"]
    rtt_share, spread, scattered = _losses(words)
    first, last = words[0], words[-1]
    pair = int(first[_V.SEGMENTS_AND_RETRANSMITTED]), int(last[_V.SEGMENTS_AND_RETRANSMITTED])
    unusual = int(first[_V.DSACK_DUPS_AND_OUT_OF_ORDER]), int(last[_V.DSACK_DUPS_AND_OUT_OF_ORDER])
    trips = words[:, _V.MIN_RTT_AND_RTT_US] & _HALF
    trips = trips[trips != _HALF]
    # The first reading may be older than what goes over the link now.
    smooth = words[1:, _V.MIN_RTT_AND_RTT_US] >> 32 & _HALF
    smooth = smooth[smooth != _HALF]
    enough = len(smooth) >= LEAST_READINGS
    busy_us = _busy_us(words)
    return Connection(
        rank=rank,
        local=local,
        peer=peer,
        seconds=max(0, int(last[_V.AT]) - int(first[_V.AT])) / 1e9,
        bytes_sent=_difference(first[_V.BYTES_SENT], last[_V.BYTES_SENT]),
        bytes_acked=_difference(first[_V.BYTES_ACKED], last[_V.BYTES_ACKED]),
        busy_ms=None if busy_us is None else busy_us / 1e3,
        segments=_turned(*map(_low, pair)),
        retransmitted=_turned(*map(_high, pair)),
        dsack_dups=_turned(*map(_low, unusual)),
        loss_rtt_share=rtt_share,
        loss_spread=spread,
        loss_scattered=scattered,
        min_rtt_ms=int(trips.min()) / 1e3 if len(trips) else None,
        floor_rtt_ms=int(smooth.min()) / 1e3 if enough else None,
        low_rtt_ms=float(np.percentile(smooth, 5)) / 1e3 if enough else None,
        usual_rtt_ms=float(np.median(smooth)) / 1e3 if enough else None,
        unconfirmed=unconfirmed,
        course=_course(words),
    )


def _busy_us(words: Int64) -> int | None:
    whole = _difference(words[0, _V.BUSY_US], words[-1, _V.BUSY_US])
    acked = words[:, _V.BYTES_ACKED]
    if whole is None or (acked < 0).any():
        return whole
    return whole - int(np.diff(words[:, _V.BUSY_US])[np.diff(acked) == 0].sum())


def _losses(words: Int64) -> tuple[float | None, float | None, bool | None]:
    """How what was sent again is spread over the readings: `loss_rtt_share`, `loss_spread` and `loss_scattered`."""
    total = words[:, _V.SEGMENTS_AND_RETRANSMITTED] >> 32 & _HALF
    trip = words[:, _V.MIN_RTT_AND_RTT_US] >> 32 & _HALF
    again, loaded = np.diff(total), np.diff(words[:, _V.BYTES_ACKED]) >= LOADED_BYTES
    if (total == _HALF).any():
        return None, None, None
    # A queue fills and overflows between two readings: the longer round trip has seen more of it.
    trips = np.maximum(trip[:-1], trip[1:]).astype(np.float64)
    known, lossy = trips < _HALF, again > 0
    moments, times = int(np.count_nonzero(lossy | loaded)), int(np.count_nonzero(lossy))
    share = None
    if np.count_nonzero(known & lossy) >= SEVERAL and trips[known & loaded].sum() > 0:
        at_losses = np.average(trips[known & lossy], weights=again[known & lossy])
        share = float(at_losses / trips[known & loaded].mean())
    # By chance alone a moment with so many losses or more is hardly one without.
    many = loaded.any() and again[loaded].sum() >= TOGETHER * np.count_nonzero(loaded)
    spread = float(np.mean(lossy[loaded])) if many else None
    return share, spread, times >= SEVERAL or 0 < moments < 2 * times


def _course(words: Int64) -> Course | None:
    """The course of a connection, in some of its readings."""
    known = words[(words[:, _V.BUSY_US] >= 0) & (words[:, _V.BYTES_ACKED] >= 0)]
    if len(known) < LEAST_READINGS:
        return None
    some = np.unique(np.linspace(0, len(known) - 1, MOST_MOMENTS).astype(np.int64))
    again = known[some, _V.SEGMENTS_AND_RETRANSMITTED] >> 32 & _HALF
    at, busy, size = (known[some, column].copy() for column in (_V.AT, _V.BUSY_US, _V.BYTES_ACKED))
    return Course(at, busy, size, np.where(again == _HALF, -1, again))


_V = ConnectionValue


def _low(word: int) -> int | None:
    half = word & _HALF
    return None if half == _HALF else half


def _high(word: int) -> int | None:
    half = word >> 32 & _HALF
    return None if half == _HALF else half


def _difference(first: np.int64, last: np.int64) -> int | None:
    """How much a counter grew; None if it is not available, or was not the same connection's."""
    return int(last) - int(first) if 0 <= first <= last else None


def _turned(first: int | None, last: int | None) -> int | None:
    """How much a counter of 32 bits grew, which may have begun again at 0."""
    return None if first is None or last is None else (last - first) & _HALF
