"""The operation that failed first, as the records of all its ranks tell of it: what a live look had known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pyddpdiag.analyse.calls.awaited import Unmatched, calls_by_member
from pyddpdiag.analyse.calls.collectives import RankCollectives
from pyddpdiag.analyse.calls.parties import Party
from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.operations import RankOperations
from pyddpdiag.analyse.progress import Progress
from pyddpdiag.model import OperationError
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.layout import BucketTime, Kind
from pyddpdiag.trace.merge import Membership, Merged


@dataclass(frozen=True)
class FirstFailure:
    """The first error, and the ranks of its operation.

    Attributes:
        error: the earliest one.
        missing: ranks that never began the operation, though they lost no record.
        members: all its ranks; empty: not every one of them is known to have begun it.
        all_in_ms: when the last of them began it, on the common clock; None: not known.
        begun_ms: when each rank in which it failed, or is in flight, began it, on the common clock.
    """

    error: OperationError
    missing: tuple[int, ...] = ()
    members: tuple[int, ...] = ()
    all_in_ms: float | None = None
    begun_ms: Mapping[int, float] = field(default_factory=dict)

    @property
    def too_late(self) -> tuple[int, ...]:
        """The ranks that began it only when it had failed already."""
        at_ms = self.error.at_ms
        return tuple(rank for rank, ms in self.begun_ms.items() if at_ms is not None and ms > at_ms)

    @property
    def stood_ms(self) -> float:
        """For how long all ranks had been in the operation when it failed; 0: they had not, or nobody knows."""
        at_ms = self.error.at_ms
        return 0.0 if at_ms is None or self.all_in_ms is None else max(0.0, at_ms - self.all_in_ms)


def failed_bucket(
    errors: Sequence[OperationError],
    merged: Merged,
    groups: Mapping[int, Membership],
    names: Names,
    reached: Sequence[Progress],
    parts: Sequence[RankOperations],
    clocks: Sequence[ClockOffset],
    zero_ns: int,
) -> FirstFailure:
    """The first failure, where it is a bucket's. A rank that reports an error of its own is none that is missing.

    Args:
        errors: all, the first one first.
        merged: the all-reduces.
        groups: the members of each process group.
        names: of buckets.
        reached: how far each rank of the run has come, in its order.
        parts: what each of them could not end.
        clocks: of the ranks.
        zero_ns: where the common clock begins.
    """
    error, failed = errors[0], {each.rank for each in errors}
    who = next(place for place, one in enumerate(reached) if one.rank == error.rank)
    for key, ledger in merged.groups():
        share = ledger.shares.get(who)
        if share is None or not share.has(error.sequence):
            continue
        place = int(np.searchsorted(ledger.sequence, np.uint64(error.sequence)))
        if names.bucket(int(ledger.common["reference"][place])) != error.what:
            continue
        members = groups[key].members
        has = [each for each in members if each in ledger.shares and ledger.shares[each].has(error.sequence)]
        missing = tuple(
            reached[each].rank
            for each in members
            if reached[each].complete
            and reached[each].buckets.get(key, -1) < error.sequence
            and reached[each].rank not in failed
        )
        begins = {
            reached[each].rank: (ns + clocks[each].offset_ns - zero_ns) / 1e6
            for each in members
            if (ns := _bucket_begin(parts[each], key, error.sequence))
        }
        if len(has) < groups[key].size:
            return FirstFailure(error, missing, begun_ms=begins)
        begun = [
            int(ledger.clocks[clock]["latest_enqueued"][place]) + clocks[each].offset_ns
            for each, clock in enumerate(merged.clock_of)
            if each in has
        ]
        return FirstFailure(error, (), _ranks(members, reached), (max(begun) - zero_ns) / 1e6, begins)
    return FirstFailure(error)


def _bucket_begin(part: RankOperations, group: int, sequence: int) -> int:
    """When a rank brought a bucket that did not end as it should; 0: it has no such bucket."""
    for records in (part.failed, part.open):
        of_kind = records["kind"] == Kind.BUCKET
        mine = of_kind & (records["group"] == np.uint64(group)) & (records["sequence"] == sequence)
        times = records["times"][mine, : BucketTime.ENDED]
        if (times > 0).any():
            return int(times[times > 0].min())
    return 0


def failed_collective(
    error: OperationError,
    every: Sequence[Party],
    parts: Sequence[RankCollectives],
    unmatched: Sequence[Unmatched],
    reached: Sequence[Progress],
    clocks: Sequence[ClockOffset],
    zero_ns: int,
) -> FirstFailure:
    """The first failure, where it is another collective's. Arguments as in `failed_bucket`, and of all ranks:

    Args:
        error: the failure.
        every: the process groups.
        parts: what each rank recorded.
        unmatched: the collectives that some ranks never began.
        reached: how far each rank has come.
        clocks: of the ranks.
        zero_ns: where the common clock begins.
    """
    missing = tuple(sorted({rank for one in unmatched if one.what == error.what for rank in one.missing}))
    who = next(place for place, one in enumerate(reached) if one.rank == error.rank)
    name = error.what.encode()
    # Of several groups that call the same, nobody knows here in which one it failed.
    mine = [party for party in every if who in party.members and name in parts[who].names]
    if missing or len(mine) != 1:
        return FirstFailure(error, missing)
    counts = calls_by_member(mine[0], name, parts, reached)
    if not counts or len(set(counts.values())) > 1:
        return FirstFailure(error)
    begins = {
        reached[each].rank: (at + clocks[each].offset_ns - zero_ns) / 1e6
        for each, at in _last_begins(mine[0], name)
    }
    return FirstFailure(error, (), _ranks(mine[0].members, reached), max(begins.values()), begins)


def _last_begins(party: Party, name: bytes) -> Iterator[tuple[int, int]]:
    """When each member last began an operation."""
    for who, part in zip(party.members, party.parts, strict=True):
        yield who, int(part.begun[part.name == part.names.index(name)].max(initial=0))


def _ranks(members: Sequence[int], reached: Sequence[Progress]) -> tuple[int, ...]:
    return tuple(reached[who].rank for who in members)
