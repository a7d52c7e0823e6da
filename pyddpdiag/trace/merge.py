"""Pair the bucket records of all ranks by (group, sequence).

The merged table is ragged: one row per record, sorted by group, sequence and rank, with the first row of
every occurrence beside it. A dense occurrence-by-rank matrix would grow with the product of both where many
small groups live in a large world.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pyddpdiag.trace.layout import BucketTime, Flag, Kind, Records
from pyddpdiag.trace.reader import is_in_flight
from pyddpdiag.trace.run import Run

Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class BucketRows:
    """Bucket records of all ranks as columns of equal length, sorted by group, sequence and rank.

    `who` is the position of the rank in the run. Times are nanoseconds on one clock, 0 = not seen;
    `enqueued <= started <= ended` holds wherever they were seen.
    """

    who: Int64
    group: UInt64
    sequence: UInt64
    reference: UInt64
    bytes: UInt64
    step: Int64
    module: Int64
    dtype: Int64
    flags: Int64
    in_flight: Bool
    enqueued: Int64
    started: Int64
    ended: Int64

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.who)

    def take(self, chosen: npt.NDArray[np.int64] | Bool) -> BucketRows:
        """The chosen rows, by index or mask."""
        return BucketRows(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


@dataclass(frozen=True, eq=False)
class Merged:
    """Occurrences: the records of one bucket's all-reduce over the ranks of its group.

    Occurrence `i` has the rows `first[i] : first[i] + count[i]`. `expected` is how many ranks of the group
    have a trace here, `group_size` how many ranks the group has. `repeated` rows were left out: the same rank
    told the same occurrence twice.
    """

    rows: BucketRows
    first: Int64
    count: Int64
    expected: Int64
    group_size: Int64
    members: dict[int, tuple[int, ...]]
    repeated: int

    def __len__(self) -> int:
        """Number of occurrences."""
        return len(self.first)

    @property
    def paired(self) -> Bool:
        """Whether every rank that should be there is there; one per occurrence."""
        return self.count >= self.expected

    def shifted(self, offsets_ns: Int64) -> Merged:
        """The same with every rank's times moved by its offset (one per rank of the run)."""
        if not offsets_ns.any():
            return self
        by_row = offsets_ns[self.rows.who]
        moved = {
            name: np.where(getattr(self.rows, name) > 0, getattr(self.rows, name) + by_row, 0)
            for name in ("enqueued", "started", "ended")
        }
        return replace(self, rows=replace(self.rows, **moved))


def merge(run: Run) -> Merged:
    """Pair the bucket records of a run. Times stay on each rank's own clock; see `clock.align`."""
    rows, repeated = _sort([_columns(trace.of_kind(Kind.BUCKET), who) for who, trace in enumerate(run.ranks)])
    if not len(rows):
        none = np.empty(0, np.int64)
        return Merged(rows, none, none, none, none, {}, repeated)
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (rows.group[1:] != rows.group[:-1]) | (rows.sequence[1:] != rows.sequence[:-1])
    first = np.flatnonzero(begins)
    count = np.diff(first, append=len(rows))
    expected, size, members = _expected(run, rows, first)
    return Merged(rows, first, count, expected, size, members, repeated)


def _columns(records: Records, who: int) -> BucketRows:
    times = records["times"]
    started, ended = times[:, BucketTime.STARTED].copy(), times[:, BucketTime.ENDED].copy()
    enqueued = times[:, BucketTime.ENQUEUED].copy()
    # The worker may take the operation before the enqueueing thread has read the clock.
    for later in (started, ended):
        np.minimum(enqueued, later, out=enqueued, where=(later > 0))
    return BucketRows(
        who=np.full(len(records), who, np.int64),
        group=records["group"].copy(),
        sequence=records["sequence"].copy(),
        reference=records["reference"].copy(),
        bytes=records["bytes"].copy(),
        step=records["step"].astype(np.int64),
        module=records["module"].astype(np.int64),
        dtype=records["dtype"].astype(np.int64),
        flags=records["flags"].astype(np.int64),
        in_flight=(is_in_flight(records) | (records["flags"] & Flag.ABANDONED > 0)) & (ended == 0),
        enqueued=enqueued,
        started=started,
        ended=ended,
    )


def _sort(parts: list[BucketRows]) -> tuple[BucketRows, int]:
    """All ranks' rows sorted by group, sequence and rank, and how many repeated ones were dropped."""
    names = BucketRows.__dataclass_fields__
    rows = BucketRows(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
    order = np.lexsort((rows.who, rows.sequence, rows.group))
    rows = rows.take(order)
    again = np.zeros(len(rows), np.bool_)
    again[1:] = (
        (rows.group[1:] == rows.group[:-1])
        & (rows.sequence[1:] == rows.sequence[:-1])
        & (rows.who[1:] == rows.who[:-1])
    )
    repeated = int(np.count_nonzero(again))
    return (rows.take(~again) if repeated else rows), repeated


def _expected(run: Run, rows: BucketRows, first: Int64) -> tuple[Int64, Int64, dict[int, tuple[int, ...]]]:
    """Per occurrence, the ranks with a trace that should be there and the group's size; members by group."""
    groups = rows.group[first]
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    told = run.groups()
    position = {trace.rank: who for who, trace in enumerate(run.ranks)}
    # Which ranks were seen in which group: one sort for all groups, however many there are.
    group_of_row = np.searchsorted(groups[starts], rows.group)
    seen = np.unique(group_of_row * len(run.ranks) + rows.who)
    bounds = np.searchsorted(seen, np.arange(len(starts) + 1) * len(run.ranks))
    expected, size = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    members: dict[int, tuple[int, ...]] = {}
    everyone = tuple(range(len(run.ranks)))
    for number, key in enumerate(groups[starts].tolist()):
        there = seen[bounds[number] : bounds[number + 1]] % len(run.ranks)
        group = told.get(key)
        if group is None:
            # Nothing is known about the group: everyone, if all were seen in it, else those who were.
            world = len(there) == len(run.ranks) or key == 0
            members[key] = everyone if world else tuple(there.tolist())
            size[number] = run.world_size if world else len(there)
        else:
            named = {position[rank] for rank in group.ranks if rank in position}
            members[key] = tuple(sorted(named | set(there.tolist())))
            size[number] = max(len(set(group.ranks)), len(members[key]))
        expected[number] = len(members[key])
    lengths = np.diff(starts, append=len(groups))
    return np.repeat(expected, lengths), np.repeat(size, lengths), members
