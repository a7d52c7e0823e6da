"""Where each step's time went on each rank: compute, data wait, exposed communication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.coverage import Coverage
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.passes import Passes
from pyddpdiag.model import StepTable
from pyddpdiag.trace.layout import CollectiveTime, Flag, Kind, StepTime
from pyddpdiag.trace.merge import Int64, Merged
from pyddpdiag.trace.run import Run

ENOUGH_STEPS: Final = 5
"""From so many steps on, step 0 (allocation, connection set-up, DDP's first bucket layout) is left out."""

# Step numbers have 32 bits, so rank and step fit into one sortable number.
_SPAN: Final = 2**32


@dataclass(frozen=True, eq=False)
class _Times:
    """What the records say, one entry per rank and step, sorted by rank, then step; ns, 0 = not seen."""

    keys: Int64
    wait_begin: Int64
    begin: Int64
    end: Int64
    last_enqueued: Int64
    last_ended: Int64
    finalize_end: Int64
    buckets: Int64
    bytes: Int64
    exposed_ms: Float64


def step_table(run: Run, merged: Merged, passes: Passes) -> StepTable:
    """One row per step and rank. `merged` must hold the ranks' own clocks."""
    times = _gather(run, merged, passes)
    who, step = times.keys // _SPAN, times.keys % _SPAN
    marked = bool((times.wait_begin > 0).any())
    finish = np.maximum(times.last_ended, times.finalize_end)
    if marked:
        known = (times.wait_begin > 0) & (times.end > times.wait_begin)
        wall = np.where(known, times.end - times.wait_begin, -1)
        data = np.where(
            (times.wait_begin > 0) & (times.begin >= times.wait_begin), times.begin - times.wait_begin, -1
        )
    else:
        previous = np.concatenate([[-1], np.arange(len(finish) - 1)]) if len(finish) else finish
        follows = np.zeros(len(finish), np.bool_)
        follows[1:] = times.keys[1:] == times.keys[:-1] + 1
        follows &= (finish > 0) & (finish[previous] > 0) & (finish >= finish[previous])
        wall = np.where(follows, finish - finish[previous], -1)
        data = np.full(len(finish), -1, np.int64)
    wall_ms = np.where(wall >= 0, wall / 1e6, np.nan)
    data_ms = np.where(data >= 0, data / 1e6, np.nan)
    compute_ms = np.maximum(0.0, wall_ms - np.nan_to_num(data_ms) - times.exposed_ms)
    source = "step records" if marked else "backward passes" if len(passes.who) else "buckets"
    order = np.lexsort((who, step))
    ranks = np.array([trace.rank for trace in run.ranks], np.int64)
    return StepTable(
        step=step,
        rank=ranks[who],
        wall_ms=wall_ms,
        compute_ms=compute_ms,
        data_wait_ms=data_ms,
        exposed_ms=times.exposed_ms,
        own_ms=_own(run, who, times),
        buckets=times.buckets,
        bytes=times.bytes,
        source=source,
        left_out=_left_out(run, who, step),
    ).take(order)


def _left_out(run: Run, who: Int64, step: Int64) -> tuple[int, ...]:
    """Steps that no median counts: step 0 (warm-up), and a step of which the ring has kept only a part."""
    if len(np.unique(step)) < ENOUGH_STEPS:
        return ()
    cut = [
        int(step[who == rank].min())
        for rank, trace in enumerate(run.ranks)
        if trace.header.overwritten and (who == rank).any()
    ]
    return tuple(sorted({*cut, *([0] if (step == 0).any() else [])}))


def _gather(run: Run, merged: Merged, passes: Passes) -> _Times:
    """Bring step, backward and bucket records together by rank and step."""
    parts = [trace.of_kind(Kind.STEP) for trace in run.ranks]
    who = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    steps = np.concatenate(parts)
    real = (steps["flags"] & Flag.NO_BATCH) == 0
    step_keys = (who * _SPAN + steps["step"].astype(np.int64))[real]
    step_times = steps["times"][real]
    rows = merged.rows
    row_keys = rows.who * _SPAN + rows.step
    pass_keys = passes.who * _SPAN + passes.step
    keys = np.unique(np.concatenate([step_keys, row_keys, pass_keys]))
    at_step, at_row, at_pass = (np.searchsorted(keys, some) for some in (step_keys, row_keys, pass_keys))

    def latest(places: Int64, values: Int64) -> Int64:
        out = np.zeros(len(keys), np.int64)
        np.maximum.at(out, places, values)
        return out

    marks = np.zeros((3, len(keys)), np.int64)
    # Of two records of the same step the first counts: assigned last.
    for column in (StepTime.WAIT_BEGIN, StepTime.BEGIN, StepTime.END):
        marks[column][at_step[::-1]] = step_times[::-1, column]
    buckets = np.bincount(at_row, minlength=len(keys))
    size = np.bincount(at_row, np.minimum(rows.bytes, np.uint64(2**53)), minlength=len(keys))
    waited = np.maximum(0, passes.last_ended - passes.finalize_begin)
    counted = passes.last_ended > 0
    exposed = np.bincount(at_pass[counted], waited[counted], minlength=len(keys)) / 1e6
    unknown = np.bincount(at_row[(passes.of_row < 0) | (rows.ended == 0)], minlength=len(keys)) > 0
    # A step without buckets (accumulation under no_sync) exposes nothing, if passes are seen at all.
    exposed[unknown | (len(passes.who) == 0)] = np.nan
    return _Times(
        keys,
        marks[StepTime.WAIT_BEGIN],
        marks[StepTime.BEGIN],
        marks[StepTime.END],
        latest(at_row, rows.enqueued),
        latest(at_row, rows.ended),
        latest(at_pass, passes.finalize_end),
        buckets.astype(np.int64),
        np.minimum(size, 2.0**62).astype(np.int64),
        exposed,
    )


def _own(run: Run, who: Int64, times: _Times) -> Float64:
    """From leaving one step's last all-reduce to handing over the next one's last bucket, in milliseconds.

    Other collectives in between are taken off: a rank that waits there for a late one is not slow itself.
    """
    own = np.full(len(who), np.nan)
    for rank, trace in enumerate(run.ranks):
        mine = np.flatnonzero((who == rank) & (times.last_ended > 0))
        if len(mine) < 2:
            continue
        left, entered = times.last_ended[mine[:-1]], times.last_enqueued[mine[1:]]
        other = trace.of_kind(Kind.COLLECTIVE)["times"]
        ended = other[other[:, CollectiveTime.ENDED] > 0]
        begun = ended[ended[:, CollectiveTime.STARTED] > 0]
        coverage = Coverage(begun[:, CollectiveTime.STARTED].copy(), begun[:, CollectiveTime.ENDED].copy())
        took = entered - left - coverage.within(left, entered)
        own[mine[1:]] = np.where(entered >= left, took / 1e6, np.nan)
    return own
