"""Single operations worth naming: those that failed, and those that had begun and not ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from pyddpdiag.analyse.names import Names
from pyddpdiag.model.rows import OpenOperation, OperationError
from pyddpdiag.output import TEXT_LIMIT, decode
from pyddpdiag.trace.layout import TIMES_USED, BucketTime, CollectiveTime, Flag, Kind, Records
from pyddpdiag.trace.reader import RankTrace, tickets_of
from pyddpdiag.trace.rows import Int64, is_in_flight
from pyddpdiag.trace.table import joined, take

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView

LISTED: Final = 1000
MAX_PARTS: Final = TEXT_LIMIT // 64

T = TypeVar("T")

_LAST: Final = int(np.iinfo(np.int64).max)

ENDED: Final = {Kind.BUCKET: BucketTime.ENDED, Kind.COLLECTIVE: CollectiveTime.ENDED}
"""The kinds that are operations, and which of their times is the end."""


@dataclass(frozen=True, eq=False)
class RankOperations:
    """One rank's notable operations: the first thousand of each kind, by ticket, and the totals.

    Of those that failed the first ones by their end, those without one last; `failed_at` is the latest time in each,
    0 = it has none. `texts` holds error texts by ticket.
    """

    open: Records
    open_total: int
    failed: Records
    failed_at: Int64
    failed_total: int
    texts: Mapping[int, str]


def rank_operations(trace: RankTrace) -> RankOperations:
    """Look for what failed and what is open in one rank's records."""
    still_open = _open_records(trace)
    failed, ended = _failed_records(trace)
    first = np.sort(np.argsort(np.where(ended > 0, ended, _LAST), kind="stable")[:LISTED])
    return RankOperations(
        open=still_open[:LISTED].copy(),
        open_total=len(still_open),
        failed=failed[first],
        failed_at=ended[first],
        failed_total=len(failed),
        texts=_texts(trace) if len(failed) else {},
    )


def _open_records(trace: RankTrace) -> Records:
    """Buckets and other collectives that began and did not end, or were closed without an end, by ticket."""
    parts = []
    for kind, ended in ENDED.items():
        records = trace.of_kind(kind)
        if not len(records):
            continue
        # Few lack an end, so look for those first.
        without_end = take(records, np.flatnonzero(records["times"][:, ended] == 0))
        parts.append(without_end[is_in_flight(without_end) | ((without_end["flags"] & Flag.ABANDONED) > 0)])
    records = joined(parts)
    return take(records, np.argsort(tickets_of(records), kind="stable"))


def _failed_records(trace: RankTrace) -> tuple[Records, Int64]:
    """Records with the error flag by ticket, and the latest time in each; 0 = it has none."""
    parts, ends = [], [np.empty(0, np.int64)]
    for kind in Kind:
        records = trace.of_kind(kind)
        # A rank has records of few kinds, and a run may have thousands of ranks.
        if kind == Kind.ERROR or not len(records):
            continue
        parts.append(take(records, np.flatnonzero(records["flags"] & Flag.ERROR)))
        ends.append(parts[-1]["times"][:, : TIMES_USED.get(kind, 0)].max(axis=1, initial=0))
    records, ended = joined(parts), np.concatenate(ends)
    order = np.argsort(tickets_of(records), kind="stable")
    return records[order], ended[order]


_SPOILED: Final = int(Flag.ERROR | Flag.ABANDONED)


def trained_until_ns(trace: RankTrace) -> int:
    """When a rank last came out of an operation with others, on its own clock, if it then got stuck or failed in one.

    From then on its connections are busy with what nobody takes, and it waits for what will not come. 0: it came out of
    none. The largest number: its last operations ended as they should.
    """
    good, ends = 0, []
    for kind, ended in ENDED.items():
        records = trace.of_kind(kind)
        end = records["times"][:, ended]
        sound = (end > 0) & (records["flags"] & _SPOILED == 0)
        good = max(good, int(end[sound].max(initial=0)))
        ends.append(end[~sound])
    stuck = any(((end == 0) | (end > good)).any() for end in ends)
    return good if stuck else _LAST


@dataclass(frozen=True)
class Listed(Generic[T]):
    """The first thousand of something, and how many there are."""

    first: tuple[T, ...]
    total: int


def open_operations(view: RunView) -> Listed[OpenOperation]:
    """Operations in flight on all ranks, by rank and ticket."""
    found: list[OpenOperation] = []
    for trace, part, rank in zip(view.run.ranks, view.operations, view.now.ranks, strict=True):
        for record in part.open[: LISTED - len(found)]:
            bucket = record["kind"] == Kind.BUCKET
            times = record["times"]
            seen = times[: TIMES_USED[Kind.BUCKET if bucket else Kind.COLLECTIVE]]
            began = int(seen[seen > 0].min()) if (seen > 0).any() else trace.newest_ns
            started = times[BucketTime.STARTED if bucket else CollectiveTime.STARTED]
            abandoned = bool(record["flags"] & Flag.ABANDONED)
            # Nobody waits any more for an operation of a closed recorder. In another one, as long as its process lives.
            lived = max(rank.lasts_until_ns or 0, trace.header.heartbeat_ns)
            until = 0 if abandoned or trace.header.closed else lived
            found.append(
                OpenOperation(
                    rank=trace.rank,
                    kind="bucket" if bucket else "collective",
                    what=_what(record, view.names),
                    sequence=int(record["sequence"]),
                    step=int(record["step"]),
                    bytes=int(record["bytes"]),
                    started=bool(started > 0),
                    abandoned=abandoned,
                    open_ms=max(0, max(trace.newest_ns, until) - began) / 1e6,
                    shared=bool(record["flags"] & Flag.SHARED),
                )
            )
    return Listed(tuple(found), sum(part.open_total for part in view.operations))


def operation_errors(view: RunView) -> Listed[OperationError]:
    """Operations that failed on all ranks, the earliest in time first; those without a time come last."""
    zero = view.headers[0].monotonic_ns
    found: list[OperationError] = []
    for trace, part, clock in zip(view.run.ranks, view.operations, view.clocks, strict=True):
        ended = part.failed_at
        at_ms = np.where(ended > 0, (ended + clock.offset_ns - zero) / 1e6, np.inf)
        for place in np.argsort(at_ms, kind="stable").tolist():
            record = part.failed[place]
            found.append(
                OperationError(
                    rank=trace.rank,
                    kind=Kind(int(record["kind"])).name.lower(),
                    what=_what(record, view.names),
                    sequence=int(record["sequence"]),
                    step=int(record["step"]),
                    text=part.texts.get(int(record["word"] >> np.uint64(2)) - 1, ""),
                    at_ms=float(at_ms[place]) if np.isfinite(at_ms[place]) else None,
                )
            )
    found.sort(key=lambda error: np.inf if error.at_ms is None else error.at_ms)
    return Listed(tuple(found[:LISTED]), sum(part.failed_total for part in view.operations))


def _texts(trace: RankTrace) -> dict[int, str]:
    """Error texts by the ticket of their operation, joined from their parts."""
    parts = trace.of_kind(Kind.ERROR)
    parts = parts[np.lexsort((tickets_of(parts), parts["index"], parts["reference"]))]
    joined: dict[int, list[bytes]] = {}
    for reference, raw in zip(
        parts["reference"][: LISTED * MAX_PARTS].tolist(),
        parts["text"][: LISTED * MAX_PARTS].tolist(),
        strict=True,
    ):
        joined.setdefault(reference, []).append(raw)
    # A character may span two parts, so the bytes are joined first.
    return {reference: decode(b"".join(pieces[:MAX_PARTS])) for reference, pieces in joined.items()}


def _what(record: Any, names: Names) -> str:
    kind = record["kind"]
    if kind == Kind.BUCKET:
        return names.bucket(int(record["reference"]))
    if kind == Kind.COLLECTIVE:
        return decode(bytes(record["name"])) or "unknown"
    return Kind(int(kind)).name.lower()
