"""Where each step's time went on each rank: compute, data wait, exposed communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.bounds import LEAST_STEPS
from pyddpdiag.analyse.calls.collectives import MEETING
from pyddpdiag.analyse.coverage import Coverage
from pyddpdiag.analyse.distinct import distinct, in_any
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.passes import Passes
from pyddpdiag.analyse.step_matrix import side_by_side
from pyddpdiag.model.steps import StepTable
from pyddpdiag.trace.layout import CollectiveTime, Flag, Kind, Records, StepTime
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Bool, BucketRows, Int64
from pyddpdiag.trace.run import Run

# Step numbers have 32 bits, so rank and step fit into one sortable number.
_SPAN: Final = 2**32


@dataclass(frozen=True, eq=False)
class RankSteps:
    """What one rank's records say about its steps, one entry per step in ascending order; ns, 0 = not seen.

    `other_ms` is the time in other collectives outside of backward passes. `device_ms` is for how much longer than
    the host an accelerator computed in the backward passes.

    `entered` and `left` are when the rank came to the step's last meeting with the others, and left it.

    `finish` is when the last bucket had ended and DDP had finalized the last pass. `passes` is how many backward
    passes there were.
    """

    step: npt.NDArray[np.uint32]
    wait_begin: Int64
    begin: Int64
    end: Int64
    finish: Int64
    buckets: npt.NDArray[np.uint32]
    bytes: Float64
    exposed_ms: Float64
    other_ms: Float64
    device_ms: Float64
    entered: Int64
    left: Int64
    passes: int


@dataclass(frozen=True, eq=False)
class StepEnds:
    """When one rank's steps ended: ns on its own clock, 0 = not known; steps in ascending order."""

    step: Int64
    at_ns: Int64


def step_ends(rank: RankSteps) -> StepEnds:
    """By the step records; without them, when the last pass was over."""
    return StepEnds(rank.step.astype(np.int64), np.where(rank.end > 0, rank.end, rank.finish))


class StepCounter:
    """Adds up one rank's buckets by step; `seen` are the steps of its buckets."""

    def __init__(self, trace: RankTrace, seen: Int64, passes: Passes) -> None:
        records = trace.of_kind(Kind.STEP)
        real = (records["flags"] & Flag.NO_BATCH) == 0
        steps, times = records["step"][real].astype(np.int64), records["times"][real]
        # Most neighbouring rows belong to one step.
        changes = seen[np.flatnonzero(np.diff(seen, prepend=-1))]
        self._keys = keys = distinct(np.concatenate([steps, changes, passes.step]))
        self._passes = passes
        self._marks = np.zeros((3, len(keys)), np.int64)
        # Of two records of the same step the first counts: assigned last.
        at = np.searchsorted(keys, steps)[::-1]
        for column in (StepTime.WAIT_BEGIN, StepTime.BEGIN, StepTime.END):
            self._marks[column][at] = times[::-1, column]
        self._enqueued = np.zeros(len(keys), np.int64)
        self._ended = np.zeros(len(keys), np.int64)
        self._buckets = np.zeros(len(keys), np.uint32)
        self._bytes = np.zeros(len(keys))
        self._unknown = np.zeros(len(keys), np.bool_)

    def add(self, rows: BucketRows, of_pass: Int64) -> None:
        """Count these buckets; `of_pass` is the backward pass of each, -1 = not known."""
        begins = np.flatnonzero(np.diff(rows.step, prepend=-1))
        if not len(begins):
            return
        # First add up stretches of one step, then add those to other stretches of the same step.
        at = np.searchsorted(self._keys, rows.step[begins])
        np.maximum.at(self._enqueued, at, np.maximum.reduceat(rows.brought, begins))
        np.maximum.at(self._ended, at, np.maximum.reduceat(rows.ended, begins))
        np.add.at(self._buckets, at, np.diff(begins, append=len(rows)).astype(np.uint32))
        size = np.minimum(rows.bytes, np.uint64(2**53)).astype(np.float64)
        np.add.at(self._bytes, at, np.add.reduceat(size, begins))
        unknown = np.logical_or.reduceat((of_pass < 0) | (rows.ended == 0), begins)
        self._unknown[at[unknown]] = True

    def finish(self, collectives: Records) -> RankSteps:
        """The sums by step; `collectives` are the rank's other operations."""
        keys, passes = self._keys, self._passes
        at = np.searchsorted(keys, passes.step)
        finish = self._ended.copy()
        np.maximum.at(finish, at, passes.finalize_end)
        last_ended = passes.last_ended
        waited = np.maximum(0, last_ended - passes.computed)
        counted = last_ended > 0
        # A step without buckets (accumulation under no_sync) exposes nothing.
        exposed = np.bincount(at[counted], waited[counted], minlength=len(keys)) / 1e6
        exposed[self._unknown] = np.nan
        wait_begin, begin, end = self._marks
        start, done = (
            collectives["times"][:, CollectiveTime.STARTED],
            collectives["times"][:, CollectiveTime.ENDED],
        )
        whole = (start > 0) & (done > 0)
        entered, left = self._meetings(collectives, whole)
        return RankSteps(
            step=keys.astype(np.uint32),
            wait_begin=wait_begin,
            begin=begin,
            end=end,
            finish=finish,
            buckets=self._buckets,
            bytes=self._bytes,
            exposed_ms=exposed,
            other_ms=self._other(Coverage(start[whole], done[whole]), finish),
            device_ms=np.bincount(at, passes.computed - passes.finalize_begin, minlength=len(keys)) / 1e6,
            entered=entered,
            left=left,
            passes=len(passes),
        )

    def _other(self, calls: Coverage, finish: Int64) -> Float64:
        """Milliseconds of each step in other collectives, but not beside a backward pass, which goes on meanwhile."""
        wait_begin, _, end = self._marks
        marked = (wait_begin > 0) & (end > wait_begin)
        previous = np.concatenate([finish[:1], finish[:-1]])
        begin, end = np.where(marked, wait_begin, previous), np.where(marked, end, finish)
        known = (begin > 0) & (end >= begin)
        within = calls.within(np.where(known, begin, 0), np.where(known, end, 0))
        passes = self._passes
        whole = (passes.begin > 0) & (passes.finalize_end >= passes.begin)
        beside = calls.within(passes.begin[whole], passes.finalize_end[whole])
        at = np.searchsorted(self._keys, passes.step[whole])
        taken_off = within - np.bincount(at, beside, minlength=len(self._keys))
        return np.asarray(np.maximum(0.0, taken_off) / 1e6)

    def _meetings(self, collectives: Records, whole: Bool) -> tuple[Int64, Int64]:
        """When the rank came to each step's last meeting with the others, and when it left; 0 = not seen.

        That is the last bucket's all-reduce. A rank without any bucket (FSDP, replicate) meets the others in other
        collectives; `whole` are those of which both times are known.
        """
        if self._buckets.any():
            return self._enqueued, self._ended
        entered, left = np.zeros_like(self._enqueued), np.zeros_like(self._ended)
        step = collectives["step"].astype(np.int64)
        at = np.searchsorted(self._keys, step)
        mine = np.flatnonzero(whole & np.isin(step, self._keys) & np.isin(collectives["name"], MEETING))
        times = collectives["times"][mine]
        np.maximum.at(entered, at[mine], times[:, CollectiveTime.STARTED])
        np.maximum.at(left, at[mine], times[:, CollectiveTime.ENDED])
        return entered, left


def step_table(run: Run, parts: Sequence[RankSteps], own: Sequence[tuple[Int64, Float64]]) -> StepTable:
    """One row per step and rank.

    Args:
        own: of each, milliseconds of its own time by step, as in `life.Between`.
    """

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    who = np.repeat(np.arange(len(parts)), [len(part.step) for part in parts])
    step = column("step").astype(np.int64)
    wait_begin, finish, exposed_ms = column("wait_begin"), column("finish"), column("exposed_ms")
    marked = bool((wait_begin > 0).any())
    passes = any(part.passes for part in parts)
    if not passes:
        exposed_ms[:] = np.nan
    if marked:
        begin, end = column("begin"), column("end")
        known = (wait_begin > 0) & (end > wait_begin)
        wall = np.where(known, end - wait_begin, -1)
        data = np.where((wait_begin > 0) & (begin >= wait_begin), begin - wait_begin, -1)
    else:
        previous = np.concatenate([[-1], np.arange(len(finish) - 1)]) if len(finish) else finish
        keys = who * _SPAN + step
        follows = np.zeros(len(finish), np.bool_)
        follows[1:] = keys[1:] == keys[:-1] + 1
        follows &= (finish > 0) & (finish[previous] > 0) & (finish >= finish[previous])
        wall = np.where(follows, finish - finish[previous], -1)
        data = np.full(len(finish), -1, np.int64)
    other_ms = column("other_ms")
    wall_ms = np.where(wall >= 0, wall / 1e6, np.nan)
    data_ms = np.where(data >= 0, data / 1e6, np.nan)
    source = "step records" if marked else "backward passes" if passes else "buckets"
    ranks = np.array([trace.rank for trace in run.ranks], np.int64)
    return StepTable(
        step=step,
        rank=ranks[who],
        wall_ms=wall_ms,
        compute_ms=np.maximum(0.0, wall_ms - np.nan_to_num(data_ms) - exposed_ms - other_ms),
        data_wait_ms=data_ms,
        exposed_ms=exposed_ms,
        other_ms=other_ms,
        own_ms=np.concatenate(
            [
                side_by_side([mine], part.step.astype(np.int64))[:, 0]
                for mine, part in zip(own, parts, strict=True)
            ]
        ),
        buckets=column("buckets").astype(np.int64),
        bytes=np.minimum(column("bytes"), 2.0**62).astype(np.int64),
        source=source,
        left_out=_left_out(run, parts, step),
        # The ranks are in order already.
    ).take(np.argsort(step, kind="stable"))


def _left_out(run: Run, parts: Sequence[RankSteps], step: Int64) -> tuple[int, ...]:
    """Steps that all medians leave out: step 0 (warm-up), and a step that the ring has kept only in part."""
    if len(in_any([part.step for part in parts])) <= LEAST_STEPS:
        return ()
    cut = [
        int(part.step[0])
        for trace, part in zip(run.ranks, parts, strict=True)
        if trace.begins_late and len(part.step)
    ]
    return tuple(sorted({*cut, *([0] if (step == 0).any() else [])}))
