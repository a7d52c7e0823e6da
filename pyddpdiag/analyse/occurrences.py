"""One bucket occurrence over the ranks of its group: arrival, queue, wire (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.trace.clock import ClockOffset
from pyddpdiag.trace.ledger import Columns, Ledger
from pyddpdiag.trace.merge import Membership, Merged
from pyddpdiag.trace.rows import Bool, Int64, UInt64

SMALL: Final = 256
"""Groups with no more all-reduces than that are measured together."""

PIECE: Final = 2**16
"""All-reduces of a larger group to measure at a time: what is needed in between stays small."""

_AS_IT_IS: Final = ("reference", "module", "bytes", "dtype", "shared")

_PAST: Final = -(2**62)
"""Before any time, even one that was moved to another clock."""


@dataclass(frozen=True, eq=False)
class Occurrences:
    """One entry per occurrence, milliseconds and GB/s, NaN = not known.

    `complete`: every expected rank ended it without an error; all values are NaN elsewhere. `last_arriver` is
    the position of the rank that arrived last, -1 where the clocks cannot tell. `shared`: summed in memory that the
    ranks share.
    """

    reference: UInt64
    step: Int64
    module: npt.NDArray[np.uint32]
    bytes: UInt64
    dtype: npt.NDArray[np.uint8]
    group: UInt64
    group_size: Int64
    complete: Bool
    shared: Bool
    arrival_ms: Float64
    queue_ms: Float64
    wire_ms: Float64
    total_ms: Float64
    hidden_fraction: Float64
    last_arriver: Int64

    def __len__(self) -> int:
        """Number of occurrences."""
        return len(self.step)

    # Computed when asked for: there are millions of occurrences, and each further column of them counts.
    @property
    def algbw_gbps(self) -> Float64:
        """Bytes of the bucket by the time on the wire."""
        wire, amount = self.wire_ms, self.bytes.astype(np.float64)
        return np.asarray(np.divide(amount, wire * 1e6, out=np.full(len(wire), np.nan), where=wire > 0))

    @property
    def busbw_gbps(self) -> Float64:
        """What a link carries, in an all-reduce that is a ring: 2 (n - 1) / n of the bytes."""
        return np.asarray(self.algbw_gbps * 2 * (self.group_size - 1) / self.group_size)


def measure(merged: Merged, groups: Mapping[int, Membership], clocks: Sequence[ClockOffset]) -> Occurrences:
    """Split every occurrence."""
    by_clock = {clock: clocks[who] for who, clock in reversed(list(enumerate(merged.clock_of)))}
    ledgers = merged.groups() or [(0, Ledger())]
    parts = []
    for some in _batches(ledgers):
        expected, size = np.ones(len(some), np.int64), np.ones(len(some), np.int64)
        for place, (key, _) in enumerate(some):
            if key in groups:
                expected[place], size[place] = groups[key].expected, groups[key].size
        lengths = [len(ledger) for _, ledger in some]
        keys = np.array([key for key, _ in some], np.uint64)
        if len(some) == 1:
            parts.append(_of_one(keys, some[0][1], expected, size, by_clock))
            continue
        whose, together = np.repeat(keys, lengths), _together([ledger for _, ledger in some])
        parts.append(
            _of_groups(whose, together, np.repeat(expected, lengths), np.repeat(size, lengths), by_clock)
        )
    return Occurrences(
        **{
            name: parts[0][name] if len(parts) == 1 else np.concatenate([part.pop(name) for part in parts])
            for name in Occurrences.__dataclass_fields__
        }
    )


@dataclass(frozen=True, eq=False)
class _Some:
    """Some all-reduces of the same clocks: what is common, and what the clocks saw."""

    common: Columns
    clocks: Mapping[int, Columns]
    length: int


def _stretch(ledger: Ledger, rows: slice) -> _Some:
    """Neighbours of one group."""
    clocks = {clock: columns.part(rows) for clock, columns in ledger.clocks.items()}
    return _Some(ledger.common.part(rows), clocks, len(ledger.sequence[rows]))


def _together(ledgers: Sequence[Ledger]) -> _Some:
    """Small groups, one after the other."""
    clocks = {clock: Columns.joined([each.clocks[clock] for each in ledgers]) for clock in ledgers[0].clocks}
    return _Some(Columns.joined([each.common for each in ledgers]), clocks, sum(map(len, ledgers)))


def _batches(groups: Sequence[tuple[int, Ledger]]) -> Iterator[list[tuple[int, Ledger]]]:
    """Groups to measure at once: neighbours that are small, so that many of them cost little more than one."""
    for _, some in groupby(
        enumerate(groups),
        lambda one: (-1, *one[1][1].clocks) if len(one[1][1]) <= SMALL else (one[0],),
    ):
        yield [group for _, group in some]


def _of_one(
    key: UInt64, ledger: Ledger, expected: Int64, size: Int64, clocks: Mapping[int, ClockOffset]
) -> dict[str, npt.NDArray[Any]]:
    """The columns of one group's occurrences, worked out piece by piece; `key`, `expected` and `size` hold one value.

    What the ledger holds as it is, and what is the same for all of them, is not copied.
    """
    pieces = [
        _of_groups(key, _stretch(ledger, slice(begin, begin + PIECE)), expected, size, clocks)
        for begin in range(0, max(1, len(ledger)), PIECE)
    ]
    same = {"group": key, "group_size": size}
    return {
        name: np.broadcast_to(same[name], len(ledger))
        if name in same
        else ledger.common[name]
        if name in _AS_IT_IS
        else np.concatenate([piece.pop(name) for piece in pieces])
        for name in Occurrences.__dataclass_fields__
    }


def _of_groups(
    key: UInt64,
    ledger: _Some,
    expected: Int64,
    size: Int64,
    clocks: Mapping[int, ClockOffset],
) -> dict[str, npt.NDArray[Any]]:
    """The columns of some groups' occurrences; group, expected ranks and size of each beside it."""
    common = ledger.common
    # The extremes that each clock saw, brought onto one.
    length = ledger.length
    latest_enqueued = np.full(length, _PAST, np.int64)
    earliest_enqueued = np.full(length, -_PAST, np.int64)
    latest_started, latest_ended = latest_enqueued.copy(), latest_enqueued.copy()
    last_arriver = np.full(length, -1, np.int64)
    clock_error_ns = np.zeros(length)
    for clock, times in ledger.clocks.items():
        offset, uncertainty = clocks[clock].offset_ns, clocks[clock].uncertainty_ns
        seen = times["latest_enqueued"] > 0
        enqueued = np.where(seen, times["latest_enqueued"] + offset, _PAST)
        # If several arrived last at the same time, the lowest rank.
        who = times["last_arriver"]
        later = (enqueued > latest_enqueued) | ((enqueued == latest_enqueued) & (who < last_arriver))
        last_arriver = np.where(later & seen, who, last_arriver)
        np.maximum(latest_enqueued, enqueued, out=latest_enqueued)
        for name, most in (("latest_begun", latest_started), ("latest_ended", latest_ended)):
            np.maximum(most, times[name] + offset, out=most, where=times[name] > 0)
        np.minimum(earliest_enqueued, times["earliest_enqueued"] + offset, out=earliest_enqueued, where=seen)
        np.maximum(
            clock_error_ns, np.inf if uncertainty is None else uncertainty, out=clock_error_ns, where=seen
        )
    # The times cover every rank that has the all-reduce, and it succeeded on all of them.
    complete = ~common["unfinished"] & (common["count"] >= expected)
    started_seen = complete & ~common["start_unseen"]
    # No rank starts before it enqueues, so the latest start is never before the latest arrival; the maximum
    # keeps the three parts an exact partition all the same.
    started = np.maximum(latest_started, latest_enqueued)
    arrival = np.where(complete, (latest_enqueued - earliest_enqueued) / 1e6, np.nan)
    wire = np.where(started_seen, (latest_ended - started) / 1e6, np.nan)
    hidden = np.divide(
        common["hidden"],
        common["hidden_count"],
        out=np.full(length, np.nan),
        where=complete & (common["hidden_count"] > 0),
    )
    # NaN compares false, so incomplete occurrences have no last arriver.
    sure = (arrival * 1e6 > clock_error_ns) & (common["count"] > 1)
    return {
        "reference": common["reference"],
        "step": common["step"].astype(np.int64),
        "module": common["module"],
        "bytes": common["bytes"],
        "dtype": common["dtype"],
        "group": key,
        "group_size": size,
        "complete": complete,
        "shared": common["shared"],
        "arrival_ms": arrival,
        "queue_ms": np.where(started_seen, (started - latest_enqueued) / 1e6, np.nan),
        "wire_ms": wire,
        "total_ms": np.where(complete, (latest_ended - earliest_enqueued) / 1e6, np.nan),
        "hidden_fraction": hidden,
        "last_arriver": np.where(sure, last_arriver, -1),
    }
