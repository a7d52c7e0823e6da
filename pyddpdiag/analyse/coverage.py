"""How much of a span is covered by intervals that may overlap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


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
