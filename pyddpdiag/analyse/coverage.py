"""How much of a span intervals cover, and when in a step a rank does its own part."""

from __future__ import annotations

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.trace.layout import BackwardTime, Kind
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64


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
