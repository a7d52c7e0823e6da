"""Which backward pass each bucket belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyddpdiag.trace.layout import BackwardTime, Kind
from pyddpdiag.trace.merge import Int64, Merged
from pyddpdiag.trace.run import Run


@dataclass(frozen=True, eq=False)
class Passes:
    """Backward passes of all ranks as columns, times in nanoseconds on each rank's own clock, 0 = not seen.

    `last_ended` is when the last of its buckets ended, `of_row` the pass of each bucket row (-1: not known).
    """

    who: Int64
    module: Int64
    step: Int64
    finalize_begin: Int64
    finalize_end: Int64
    last_ended: Int64
    of_row: Int64

    def finalize_of_row(self) -> Int64:
        """`finalize_begin` of each bucket row's pass; 0 = not known."""
        if not len(self.who):
            return np.zeros(len(self.of_row), np.int64)
        return np.where(self.of_row >= 0, self.finalize_begin[self.of_row], 0)


def match_passes(run: Run, merged: Merged) -> Passes:
    """Find every bucket's backward pass: the first of its rank and module to finalize after it was enqueued.

    The step must agree as well, so that a pass whose record was overwritten is not mistaken for the next one.
    Several passes in a step (gradient accumulation, two losses) are told apart. `merged` must hold the ranks'
    own clocks.
    """
    parts = [trace.of_kind(Kind.BACKWARD) for trace in run.ranks]
    who = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    records = np.concatenate(parts)
    times = records["times"]
    module, step = records["module"].astype(np.int64), records["step"].astype(np.int64)
    finalize_begin = times[:, BackwardTime.FINALIZE_BEGIN].copy()
    rows = merged.rows
    of_row = np.full(len(rows), -1, np.int64)
    for rank in range(len(parts)):
        mine = np.flatnonzero(rows.who == rank)
        passes = np.flatnonzero((who == rank) & (finalize_begin > 0))
        if len(mine) and len(passes):
            found = _next_pass(rows.module[mine], rows.enqueued[mine], module[passes], finalize_begin[passes])
            right = (found >= 0) & (rows.enqueued[mine] > 0)
            right &= step[passes[found]] == rows.step[mine]
            of_row[mine[right]] = passes[found[right]]
    last_ended = np.zeros(len(records), np.int64)
    known = of_row >= 0
    np.maximum.at(last_ended, of_row[known], rows.ended[known])
    # A pass with a bucket that never ended has not ended.
    last_ended[of_row[known & (rows.ended == 0)]] = 0
    return Passes(
        who, module, step, finalize_begin, times[:, BackwardTime.FINALIZE_END].copy(), last_ended, of_row
    )


def _next_pass(module: Int64, enqueued: Int64, pass_module: Int64, finalize: Int64) -> Int64:
    """For each bucket the index of the first pass of its module that finalizes at or after it; -1 = none."""
    if (pass_module == pass_module[0]).all():
        order = np.argsort(finalize, kind="stable")
        place = np.searchsorted(finalize[order], enqueued, "left")
        found = order[np.minimum(place, len(order) - 1)]
        found[(place == len(order)) | (module != pass_module[0])] = -1
        return found
    # Sort buckets and passes together; the pass to find is then the next one down the list.
    is_pass = np.concatenate([np.zeros(len(module), np.bool_), np.ones(len(pass_module), np.bool_)])
    modules = np.concatenate([module, pass_module])
    order = np.lexsort((is_pass, np.concatenate([enqueued, finalize]), modules))
    none = len(order)
    place = np.where(is_pass[order], np.arange(none), none)
    place = np.minimum.accumulate(place[::-1])[::-1]
    there = place < none
    entry = order[np.minimum(place, none - 1)]
    found = np.full(none, -1, np.int64)
    right = there & (modules[entry] == modules[order])
    found[order[right]] = entry[right] - len(module)
    return found[: len(module)]
