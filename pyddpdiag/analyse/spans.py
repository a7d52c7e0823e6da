"""Spans of a rank's time: what intervals cover, its backward passes with their buckets, and named phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64, stats_by
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.model.rows import PhaseStats
from pyddpdiag.output import decode
from pyddpdiag.trace.layout import BackwardTime, Kind, PhaseTime, Records
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import BucketRows, Int64, is_in_flight
from pyddpdiag.trace.run import Run


class Coverage:
    """The union of intervals, asked for its length within many spans at once."""

    def __init__(self, start: Int64, end: Int64) -> None:
        """Take intervals `start[i] .. end[i]` in nanoseconds, in any order, `start <= end`."""
        order = np.argsort(start, kind="stable")
        self._start = start[order]
        self._reach = np.maximum.accumulate(end[order]) if len(end) else end
        before = np.concatenate([self._start[:1], self._reach[:-1]])
        self._covered = np.cumsum(np.maximum(0, self._reach - np.maximum(self._start, before)))

    def _until(self, time: Int64) -> Int64:
        """Nanoseconds covered before each time."""
        place = np.searchsorted(self._start, time, "left") - 1
        overhang = np.maximum(0, self._reach[place] - time)
        return np.asarray(np.where(place >= 0, self._covered[place] - overhang, 0))

    def within(self, begin: Int64, end: Int64) -> Int64:
        """Nanoseconds covered within each span."""
        if not len(self._start):
            return np.zeros(len(begin), np.int64)
        return np.asarray(np.maximum(0, self._until(end) - self._until(begin)))


def step_spans(trace: RankTrace, number: Int64, end: Int64, busy: Coverage) -> dict[str, Float64]:
    """Seconds of each of `SPANS` in these steps, without collectives and phases; NaN: a pass has no times."""
    records = trace.of_kind(Kind.BACKWARD)
    records = records[np.isin(records["step"], number)]
    times = records["times"]
    at = np.searchsorted(number, records["step"])
    forward, begin, finish = (
        times[:, column]
        for column in (BackwardTime.FORWARD_BEGIN, BackwardTime.BEGIN, BackwardTime.FINALIZE_BEGIN)
    )
    last = np.zeros(len(number), np.int64)
    np.maximum.at(last, at, times[:, BackwardTime.FINALIZE_END])
    whole = np.bincount(at, minlength=len(number)) > 0
    whole[at[(forward <= 0) | (begin < forward) | (finish < begin)]] = False
    whole &= (last > 0) & (last <= end)

    def seconds(low: Int64, high: Int64) -> Float64:
        high = np.maximum(low, high)
        return np.asarray((high - low - busy.within(low, high)) / 1e9)

    spans = {
        "forward": np.bincount(at, seconds(forward, begin), len(number)),
        "backward": np.bincount(at, seconds(begin, finish), len(number)),
        "after": seconds(np.where(whole, last, end), end),
    }
    return {name: np.where(whole, values, np.nan) for name, values in spans.items()}


class Passes:
    """One rank's backward passes as columns, times in nanoseconds on the rank's own clock, 0 = not seen.

    `last_ended` is when the last of its buckets ended, among those given to `match`; also 0 if one of them
    has not ended. `computed` is when the rank was done with its own part: when DDP began to wait for buckets, or, on
    an accelerator, when that had computed the last of those given to `match`.
    """

    def __init__(self, records: Records) -> None:
        times = records["times"]
        self.module = records["module"].astype(np.int64)
        self.step = records["step"].astype(np.int64)
        self.forward_begin: Int64 = times[:, BackwardTime.FORWARD_BEGIN].copy()
        self.forward_end: Int64 = times[:, BackwardTime.FORWARD_END].copy()
        self.begin: Int64 = times[:, BackwardTime.BEGIN].copy()
        self.finalize_begin: Int64 = times[:, BackwardTime.FINALIZE_BEGIN].copy()
        self.finalize_end: Int64 = times[:, BackwardTime.FINALIZE_END].copy()
        self._latest = np.zeros(len(records), np.int64)
        self._open = np.zeros(len(records), np.bool_)
        self.computed: Int64 = self.finalize_begin.copy()
        finalized = np.flatnonzero(self.finalize_begin > 0)
        # By module and time, the earlier record first.
        self._order = finalized[np.lexsort((self.finalize_begin[finalized], self.module[finalized]))]
        self._modules = self.module[self._order]
        self._times = self.finalize_begin[self._order]

    def __len__(self) -> int:
        """Number of passes."""
        return len(self.step)

    @property
    def last_ended(self) -> Int64:
        """When the last bucket of each pass ended; 0 = not known."""
        # A pass with a bucket that never ended has not ended.
        return np.where(self._open, 0, self._latest)

    def match(self, rows: BucketRows) -> Int64:
        """Find every bucket's backward pass: the first of its module to finalize after it was enqueued; -1 = none.

        The step must agree as well, so that a pass whose record was overwritten is not mistaken for the next one.
        It distinguishes several passes in a step (gradient accumulation, two losses).
        """
        if not len(self._order) or not len(rows):
            return np.full(len(rows), -1, np.int64)
        place = self._next(rows.module, rows.enqueued)
        there = place < len(self._order)
        place[~there] = 0
        found = self._order[place]
        there &= (rows.enqueued > 0) & (self._modules[place] == rows.module) & (self.step[found] == rows.step)
        found[~there] = -1
        known = found[there]
        np.maximum.at(self._latest, known, rows.ended[there])
        np.maximum.at(self.computed, known, rows.brought[there])
        self._open[known[rows.ended[there] == 0]] = True
        return found

    def hidden(self, rows: BucketRows, found: Int64) -> Float64:
        """The part of each bucket's all-reduce that lies before the rank's own part was over; NaN = not known.

        All of an accelerator's buckets must have been given to `match` before.
        """
        if not len(self):
            return np.full(len(rows), np.nan)
        finalize = np.where(found >= 0, self.computed[found], 0)
        span = (rows.ended - rows.brought).astype(np.float64)
        known = (finalize > 0) & (rows.ended > 0) & (span > 0)
        before = np.clip(np.minimum(finalize, rows.ended) - rows.brought, 0, None)
        return np.asarray(np.divide(before, span, out=np.full(len(rows), np.nan), where=known))

    def _next(self, module: Int64, enqueued: Int64) -> Int64:
        """For each bucket the first place in the order that is not before it, by module and time."""
        if self._modules[0] == self._modules[-1]:
            return np.searchsorted(self._times, enqueued, "left")
        low = np.searchsorted(self._modules, module, "left")
        high = np.searchsorted(self._modules, module, "right")
        # A binary search within each bucket's own module, for all of them at once.
        for _ in range(int((high - low).max()).bit_length()):
            middle = np.minimum((low + high) // 2, len(self._times) - 1)
            before = (low < high) & (self._times[middle] < enqueued)
            high = np.where(before | (low >= high), high, middle)
            low = np.where(before, middle + 1, low)
        return low


NAME_LIMIT: Final = 64
"""A program has a few phases; a damaged file could claim millions of names."""


@dataclass(frozen=True, eq=False)
class RankPhases:
    """One rank's phases in the order of their tickets; ns, `end` is 0 for one that has not ended.

    `name` is a number into `names`.
    """

    names: tuple[str, ...]
    name: Int64
    begin: Int64
    end: Int64

    @property
    def ended(self) -> tuple[Int64, Int64]:
        """Begin and end of those that have ended."""
        whole = (self.begin > 0) & (self.end > 0)
        return self.begin[whole], self.end[whole]

    def within(self, left: Int64, entered: Int64) -> dict[str, Float64]:
        """Milliseconds of each phase within each span."""
        found = {}
        for number, name in enumerate(self.names):
            mine = (self.name == number) & (self.begin > 0) & (self.end > 0)
            if mine.any():
                found[name] = Coverage(self.begin[mine], self.end[mine]).within(left, entered) / 1e6
        return found


_NONE: Final = RankPhases((), *(np.empty(0, np.int64) for _ in range(3)))
"""Of a program that names none."""


def rank_phases(records: Records) -> RankPhases:
    """What analysis needs from one rank's phase records."""
    if not len(records):
        return _NONE
    raw, codes = np.unique(records["name"], return_inverse=True)
    kept = np.flatnonzero(codes < NAME_LIMIT)
    times = records["times"][kept]
    end = np.where(is_in_flight(records[kept]), 0, times[:, PhaseTime.END])
    return RankPhases(
        names=tuple(decode(bytes(name)) or "unnamed" for name in raw[:NAME_LIMIT]),
        name=codes[kept].astype(np.int64),
        begin=times[:, PhaseTime.BEGIN].copy(),
        end=end,
    )


def phase_stats(run: Run, parts: Sequence[RankPhases]) -> tuple[PhaseStats, ...]:
    """All phases by name and rank, those that took most time first."""
    found = []
    for trace, part in zip(run.ranks, parts, strict=True):
        if not part.names:
            continue
        known = (part.begin > 0) & (part.end > 0)
        took = np.where(known, (part.end - part.begin) / 1e6, np.nan)
        stats = stats_by(took, part.name, len(part.names))
        count = np.bincount(part.name, minlength=len(part.names))
        total = np.bincount(part.name, np.nan_to_num(took), minlength=len(part.names))
        ended = np.bincount(part.name[known], minlength=len(part.names))
        found += [
            PhaseStats(
                name,
                trace.rank,
                int(count[at]),
                stats[at].median,
                float(total[at]),
                int(count[at] - ended[at]),
            )
            for at, name in enumerate(part.names)
        ]
    total_of: dict[str, float] = {}
    for phase in found:
        total_of[phase.name] = total_of.get(phase.name, 0.0) + phase.total_ms
    return tuple(sorted(found, key=lambda phase: (-total_of[phase.name], phase.name, phase.rank)))


def phase_matrices(parts: Sequence[tuple[Int64, Mapping[str, Float64]]], steps: Int64) -> dict[str, Float64]:
    """By phase, its time before each judged step's all-reduces on each rank: [steps, ranks] float64 in ms.

    Args:
        parts: a rank's steps, and for each phase its milliseconds in each of them.
    """
    names = dict.fromkeys(name for _, phases in parts for name in phases)
    return {
        name: np.nan_to_num(
            side_by_side([(step, phases.get(name, np.zeros(len(step)))) for step, phases in parts], steps)
        )
        for name in list(names)[:NAME_LIMIT]
    }
