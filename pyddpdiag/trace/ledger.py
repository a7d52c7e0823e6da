"""The all-reduces of one process group, added up rank by rank.

It keeps only what reports need from all ranks (the latest, the earliest, the last to arrive): one entry per
all-reduce and clock, however many ranks the group has. So memory grows with the number of all-reduces, not of
records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.trace.layout import Flag
from pyddpdiag.trace.rows import BucketRows, Int64, UInt64

Places = slice | Int64
"""Where entries are: a stretch of them, or their indices."""

NEVER: Final = 2**62
"""Stands for an earliest time that is not known. Later than any time, even one moved to another clock."""

_SPOILED: Final = int(Flag.ERROR | Flag.ABANDONED)

_COMMON: Final = {
    "reference": (np.uint64, 0),
    "bytes": (np.uint64, 0),
    "step": (np.uint32, 0),
    "module": (np.uint32, 0),
    "dtype": (np.uint8, 0),
    "count": (np.uint32, 0),
    "unfinished": (np.bool_, False),
    "start_unseen": (np.bool_, False),
    "shared": (np.bool_, False),
    "hidden": (np.float64, 0.0),
    "hidden_count": (np.uint32, 0),
    "differs": (np.uint8, 0),
}
_PER_CLOCK: Final = {
    "latest_enqueued": (np.int64, 0),
    "earliest_enqueued": (np.int64, NEVER),
    "latest_begun": (np.int64, 0),
    "latest_ended": (np.int64, 0),
    "earliest_ended": (np.int64, NEVER),
    "last_arriver": (np.int32, -1),
}

COMPARED: Final = ("bytes", "dtype", "reference")
"""What should be the same on all ranks; each has its bit in `differs`, in this order."""


class Columns:
    """Arrays of equal length by name, which grow together."""

    def __init__(self, kinds: Mapping[str, tuple[Any, Any]], length: int) -> None:
        self._kinds = kinds
        # A damaged file may name any number of groups, so beginning one must be cheap.
        self._arrays = {
            name: np.full(length, initial, kind) if initial else np.zeros(length, kind)
            for name, (kind, initial) in kinds.items()
        }

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """The entries of all parts, one part after the other."""
        whole = cls(parts[0]._kinds, 0)
        for name in whole._arrays:
            whole._arrays[name] = np.concatenate([part._arrays[name] for part in parts])
        return whole

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """One array."""
        return self._arrays[name]

    def part(self, rows: slice) -> Columns:
        """Some neighbouring entries, not copied."""
        some = Columns({}, 0)
        some._arrays = {name: array[rows] for name, array in self._arrays.items()}
        return some

    def insert(self, before: Int64) -> None:
        """Put new entries in front of these (a length: at the end)."""
        for name, array in self._arrays.items():
            self._arrays[name] = np.insert(array, before, self._kinds[name][1])


_NONE: Final = Columns(_COMMON, 0)


@dataclass
class Waiting:
    """The first all-reduce of a rank that began and did not end."""

    sequence: int
    reference: int
    step: int


@dataclass
class Share:
    """Which all-reduces of a group one rank has: all from `low[i]` to `high[i]`, stretch by stretch.

    `differing` holds, for each compared field, the rank's first sequence number and value that differ from
    those of the first rank that has this all-reduce.
    """

    low: UInt64
    high: UInt64
    waiting: Waiting | None = None
    differing: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many it has."""
        return int((self.high - self.low).sum()) + len(self.low)

    def has(self, sequence: int) -> bool:
        """Whether it has this one."""
        place = int(np.searchsorted(self.low, np.uint64(sequence), "right")) - 1
        return place >= 0 and sequence <= int(self.high[place])


class Ledger:
    """One entry per all-reduce, sorted by sequence.

    `common` holds what does not depend on the clock: reference, bytes, step, module and dtype from the first
    rank that has it; and over all ranks how many have it (`count`), whether it failed or lacks an end on any
    rank (`unfinished`) or a start (`start_unseen`), and how much of it was hidden, summed over `hidden_count`
    ranks. `clocks` holds the extremes of the times by clock, each on its own; 0 and `NEVER`: none was seen.
    `begun` is when it started, or was enqueued where the start was not seen.
    """

    def __init__(self) -> None:
        self.sequence: UInt64 = np.empty(0, np.uint64)
        self.common = _NONE
        self.clocks: dict[int, Columns] = {}
        self.shares: dict[int, Share] = {}

    def __len__(self) -> int:
        """Number of all-reduces."""
        return len(self.sequence)

    def enter(self, who: int, clock: int, sequence: UInt64) -> Places:
        """Make entries for a rank's all-reduces, sorted and without repeats; returns where they are."""
        if len(sequence) == 1:
            self.shares[who] = Share(*(sequence.copy(),) * 2)
        else:
            breaks = np.flatnonzero(sequence[1:] - sequence[:-1] != 1)
            low = sequence[np.concatenate(([0], breaks + 1))]
            self.shares[who] = Share(low, sequence[np.concatenate((breaks, [len(sequence) - 1]))])
        places: Places | None
        if not len(self):
            self.sequence = sequence.copy()
            self.common = Columns(_COMMON, len(sequence))
            places = slice(0, len(sequence))
        else:
            places = self._stretch(sequence)
        if places is None:
            before = np.searchsorted(self.sequence, sequence)
            there = np.zeros(len(sequence), np.bool_)
            inside = before < len(self)
            there[inside] = self.sequence[before[inside]] == sequence[inside]
            new = before[~there]
            self.sequence = np.insert(self.sequence, new, sequence[~there])
            for columns in (self.common, *self.clocks.values()):
                columns.insert(new)
            places = self._stretch(sequence)
        if clock not in self.clocks:
            self.clocks[clock] = Columns(_PER_CLOCK, len(self))
        return np.searchsorted(self.sequence, sequence) if places is None else places

    def _stretch(self, sequence: UInt64) -> slice | None:
        """Where the entries of these all-reduces are, if all exist and nothing else is between them."""
        first = int(self.sequence.searchsorted(sequence[0]))
        stretch = slice(first, first + len(sequence))
        there = self.sequence[stretch]
        return stretch if len(there) == len(sequence) and (there == sequence).all() else None

    def add(
        self, who: int, clock: int, at: Places, rows: BucketRows, hidden: npt.NDArray[np.float64]
    ) -> None:
        """Add a rank's rows to their entries; `hidden` is the hidden part of each, NaN = not known.

        Ranks must come in ascending order: the first of equals counts, for the values and as last to arrive.
        """
        common, times = self.common, self.clocks[clock]
        self._compare(who, at, rows)
        common["count"][at] += 1
        spoiled = (rows.enqueued == 0) | (rows.ended == 0) | (rows.flags & _SPOILED != 0)
        common["unfinished"][at] |= spoiled
        common["start_unseen"][at] |= rows.started == 0
        common["shared"][at] |= rows.flags & Flag.SHARED != 0
        known = ~np.isnan(hidden)
        common["hidden"][at] += np.where(known, hidden, 0.0)
        common["hidden_count"][at] += known
        later = rows.brought > times["latest_enqueued"][at]
        times["last_arriver"][at] = np.where(later, who, times["last_arriver"][at])
        begun = np.where(rows.started > 0, rows.started, rows.brought)
        for name, values in (
            ("latest_enqueued", rows.brought),
            ("latest_begun", begun),
            ("latest_ended", rows.ended),
        ):
            times[name][at] = np.maximum(times[name][at], values)
        for name, values in (("earliest_enqueued", rows.brought), ("earliest_ended", rows.ended)):
            times[name][at] = np.minimum(times[name][at], np.where(values > 0, values, NEVER))
        share = self.shares[who]
        if share.waiting is None and rows.in_flight.any():
            first = int(rows.in_flight.argmax())
            share.waiting = Waiting(
                int(rows.sequence[first]), int(rows.reference[first]), int(rows.step[first])
            )

    def _compare(self, who: int, at: Places, rows: BucketRows) -> None:
        """The first rank's values become the entry's; note where another rank's values differ."""
        common = self.common
        new = common["count"][at] == 0
        if new.all():
            for name in ("reference", "bytes", "step", "module", "dtype"):
                common[name][at] = getattr(rows, name)
            return
        if new.any():
            for name in ("reference", "bytes", "step", "module", "dtype"):
                common[name][at] = np.where(new, getattr(rows, name), common[name][at])
        for bit, name in enumerate(COMPARED):
            values = getattr(rows, name)
            differs = values != common[name][at]
            if name == "bytes":
                # Of a sparse bucket, each rank brings what it has.
                differs &= rows.flags & Flag.SPARSE == 0
            if differs.any():
                common["differs"][at] |= differs.astype(np.uint8) << np.uint8(bit)
                first = int(differs.argmax())
                self.shares[who].differing.setdefault(name, (int(rows.sequence[first]), int(values[first])))
