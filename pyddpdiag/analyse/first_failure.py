"""The operation that failed first, as the records of all its ranks tell of it: what a live look had known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from pyddpdiag.analyse.operations import RankOperations
from pyddpdiag.model.rows import OperationError
from pyddpdiag.trace.layout import BucketTime, Kind
from pyddpdiag.trace.ledger import Ledger

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView


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
    begun = [int(part.begun[part.name == part.names.index(name)].max(initial=0)) for part in party.parts]
    begins = {
        rank: _common_ms(view, who, ns)
        for who, rank, ns in zip(party.members, party.ranks, begun, strict=True)
    }
    return FirstFailure(error, (), party.ranks, max(begins.values()), begins)
