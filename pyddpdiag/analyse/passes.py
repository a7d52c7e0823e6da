"""Which backward pass each bucket belongs to."""

from __future__ import annotations

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.trace.layout import BackwardTime, Records
from pyddpdiag.trace.rows import BucketRows, Int64


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
