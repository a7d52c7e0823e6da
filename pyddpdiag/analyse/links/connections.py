"""One rank's readings of its TCP connections, with their names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import numpy as np

from pyddpdiag.output import clean
from pyddpdiag.trace.layout import ConnectionValue, Flag, Kind, Records
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64

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
