"""Single operations worth naming: those that failed, the first one of all ranks, and those that did not end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from pyddpdiag.analyse.calls.collectives import rows_of
from pyddpdiag.analyse.names import Names
from pyddpdiag.model.rows import OpenOperation, OperationError
from pyddpdiag.output import TEXT_LIMIT, decode
from pyddpdiag.trace.layout import TIMES_USED, BucketTime, CollectiveTime, Flag, Kind, Records
from pyddpdiag.trace.ledger import Ledger
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


@dataclass(frozen=True)
class FirstFailure:
    """The first error, and the ranks of its operation.

    Attributes:
        error: the earliest one.
        missing: ranks that never began the operation, though they lost no record.
        members: all its ranks; empty: not every one of them is known to have begun it.
        all_in_ms: when the last of them began it, on the common clock; infinite: not known.
        begun_ms: when each rank in which it failed, or is in flight, began it, on the common clock.
    """

    error: OperationError
    missing: tuple[int, ...] = ()
    members: tuple[int, ...] = ()
    all_in_ms: float = inf
    begun_ms: Mapping[int, float] = field(default_factory=dict)

    @property
    def at_ms(self) -> float:
        """When it failed, on the common clock; infinite: not known."""
        return inf if self.error.at_ms is None else self.error.at_ms

    @property
    def too_late(self) -> tuple[int, ...]:
        """The ranks that began it only when it had failed already."""
        return tuple(rank for rank, ms in self.begun_ms.items() if ms > self.at_ms)

    @property
    def stood_ms(self) -> float:
        """For how long all ranks had been in the operation when it failed; 0: they had not, or nobody knows."""
        return max(0.0, self.at_ms - self.all_in_ms) if self.at_ms < inf else 0.0


def first_failure(view: RunView) -> FirstFailure | None:
    """The operation that failed first, and what its ranks did; None: none failed."""
    if not view.errors.first:
        return None
    error = view.errors.first[0]
    if error.kind == "bucket":
        return _failed_bucket(view, error)
    return _failed_collective(view, error) if error.kind == "collective" else FirstFailure(error)


def _common_ms(view: RunView, who: int, ns: int) -> float:
    """A time of a rank's clock on the common one."""
    return (ns + view.clocks[who].offset_ns - view.headers[0].monotonic_ns) / 1e6


def _failed_bucket(view: RunView, error: OperationError) -> FirstFailure:
    """A rank that reports an error of its own is none that is missing."""
    group = _group_of(view, error)
    if group is None:
        return FirstFailure(error)
    key, ledger = group
    error = _oldest(view, key, error)
    reached, failed = view.progress, {each.rank for each in view.errors.first}
    place = int(np.searchsorted(ledger.sequence, np.uint64(error.sequence)))
    members = view.memberships[key].members
    has = [each for each in members if each in ledger.shares and ledger.shares[each].has(error.sequence)]
    begins = {
        reached[each].rank: _common_ms(view, each, ns)
        for each in members
        if (ns := _bucket_begin(view.operations[each], key, error.sequence))
    }
    if len(has) < view.memberships[key].size:
        missing = tuple(
            reached[each].rank
            for each in members
            if reached[each].complete
            and reached[each].buckets.get(key, -1) < error.sequence
            and reached[each].rank not in failed
        )
        return FirstFailure(error, missing, begun_ms=begins)
    begun = [
        _common_ms(view, each, int(ledger.clocks[clock]["latest_enqueued"][place]))
        for each, clock in enumerate(view.merged.clock_of)
        if each in has
    ]
    return FirstFailure(error, (), tuple(reached[each].rank for each in members), max(begun), begins)


def _group_of(view: RunView, error: OperationError) -> tuple[int, Ledger] | None:
    """The process group of a bucket that failed, and what it did; None: no group has it."""
    who = next(place for place, one in enumerate(view.progress) if one.rank == error.rank)
    for key, ledger in view.merged.groups():
        if who in ledger.shares and ledger.shares[who].has(error.sequence):
            place = int(np.searchsorted(ledger.sequence, np.uint64(error.sequence)))
            if view.names.bucket(int(ledger.common["reference"][place])) == error.what:
                return key, ledger
    return None


def _oldest(view: RunView, key: int, error: OperationError) -> OperationError:
    """What failed first in a group's own order, in which a rank may be one operation behind those that ended it.

    Its last rank to end it may be cut off while the others wait in the next one, which that rank never begins.
    """
    in_group = {
        (reached.rank, int(record["sequence"]))
        for reached, part in zip(view.progress, view.operations, strict=True)
        for record in part.failed
        if record["kind"] == Kind.BUCKET and record["group"] == np.uint64(key)
    }
    theirs = [
        one for one in view.errors.first if one.kind == "bucket" and (one.rank, one.sequence) in in_group
    ]
    return min(theirs, key=lambda one: one.sequence, default=error)


def _bucket_begin(part: RankOperations, group: int, sequence: int) -> int:
    """When a rank brought a bucket that did not end as it should; 0: it has no such bucket."""
    for records in (part.failed, part.open):
        of_kind = records["kind"] == Kind.BUCKET
        mine = of_kind & (records["group"] == np.uint64(group)) & (records["sequence"] == sequence)
        times = records["times"][mine, : BucketTime.ENDED]
        if (times > 0).any():
            return int(times[times > 0].min())
    return 0


def _failed_collective(view: RunView, error: OperationError) -> FirstFailure:
    missing = tuple(
        sorted({rank for one in view.unmatched if one.what == error.what for rank in one.missing})
    )
    name = error.what.encode()
    # Of several groups that call the same, nobody knows here in which one it failed.
    mine = [
        party
        for party in view.parties
        for rank, part in zip(party.ranks, party.parts, strict=True)
        if rank == error.rank and name in part.names
    ]
    if missing or len(mine) != 1:
        return FirstFailure(error, missing)
    (party,) = mine
    if len(set(party.calls(name).values())) != 1:
        return FirstFailure(error)
    # When each of them last began it.
    begun = [int(part.begun[rows_of(part, name)].max(initial=0)) for part in party.parts]
    begins = {
        rank: _common_ms(view, who, ns)
        for who, rank, ns in zip(party.members, party.ranks, begun, strict=True)
    }
    return FirstFailure(error, (), party.ranks, max(begins.values()), begins)
