"""What a plan needs of a recorded run: when each rank handed each bucket over, and what each took on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.assignment import Assignment, assignment
from pyddpdiag.analyse.bounds import LEAST_STEPS
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wire_fit import HALF, lasting_buckets, most_round_ms
from pyddpdiag.plan.ring import Sharing, busy_before, work_alone
from pyddpdiag.trace.layout import BucketTime, Flag, Kind
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64, UInt64


class CannotTell(Exception):  # noqa: N818 - an answer, and no error
    """The run holds too little; the text says what is missing."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """The judged steps of a run that have its lasting layout; times in ms.

    Attributes:
        numbers: of the ranks.
        handed: when each rank handed each bucket over, from its leaving the step before: [steps, ranks, buckets].
        busy: for how long of that time buckets were on their way: the same shape.
        step: from the end of the step before to the end of this one: [steps].
        during: what each bucket would have taken with the link to itself, the part while a rank computed:
            [steps, buckets].
        after: the other part.
        core_wait: for how long a rank that could compute had no core, the mean of the ranks: [steps]; NaN: not known.
        most_round_ms: of the ring, by the connections' round trips; None: not known.
        sizes: the bytes of each bucket.
        ready: by parameter, when its gradient is ready, before the last bucket is handed over (at most 0), and for
            how long of the time between buckets were on their way.
        layout: which parameters lie in which bucket; None: not known, or not sent as they are.
        on_one_machine: the ranks met over the loopback interface.
        sixteen_bits: gradients travel in 16 bits already.
        step_ms: the median of all judged steps, of which these are the usual ones.
    """

    numbers: tuple[int, ...]
    handed: Float64
    busy: Float64
    step: Float64
    during: Float64
    after: Float64
    core_wait: Float64
    most_round_ms: float | None
    sizes: Float64
    ready: Mapping[str, tuple[float, float]]
    layout: Assignment | None
    on_one_machine: bool
    sixteen_bits: bool
    step_ms: float

    @property
    def ranks(self) -> int:
        """How many there were."""
        return int(self.handed.shape[1])

    def alone(self, sharing: Sharing) -> Float64:
        """`handed`, had the ranks computed alone."""
        return np.asarray(self.handed - (1.0 - sharing.compute) * self.busy)

    def ready_alone(self, name: str, sharing: Sharing) -> float:
        """A parameter's time in `ready`, had the ranks computed alone."""
        before, busy = self.ready[name]
        return min(0.0, before + (1.0 - sharing.compute) * busy)


def recorded(view: RunView) -> Recorded:
    """What a plan needs of a run whose records are still there.

    Raises:
        CannotTell: the run holds too little for any plan.
    """
    if not view.run.is_whole:
        raise CannotTell("traces of some ranks are missing or damaged.")
    if len(view.run.ranks) < 2:
        raise CannotTell("a single rank sends nothing: record 2 or more.")
    buckets = lasting_buckets(view.buckets)
    if len({bucket.group for bucket in buckets}) != 1 or len({bucket.module for bucket in buckets}) != 1:
        raise CannotTell("the run has no buckets, or those of several modules or process groups.")
    if any(bucket.shared_memory for bucket in buckets):
        raise CannotTell("buckets were averaged in shared memory: record the run over Gloo.")
    if buckets[0].group_size != len(view.run.ranks):
        raise CannotTell("not all ranks average together.")
    rows = Rows(view)
    plain = all(bucket.dtype == bucket.gradient_dtype for bucket in buckets)
    return Recorded(
        tuple(trace.rank for trace in view.run.ranks),
        rows.handed,
        rows.busy,
        rows.step,
        rows.during,
        rows.after,
        _core_wait(view, rows),
        most_round_ms(view.links),
        rows.sizes,
        _ready(view, rows, buckets[0].module),
        assignment(view.names, buckets) if plain else None,
        _on_one_machine(view),
        any(bucket.dtype in HALF for bucket in buckets),
        view.judged.wall_ms,
    )


class Rows:
    """The buckets of the steps that a plan is made from, side by side."""

    def __init__(self, view: RunView) -> None:
        parts = [
            _buckets(trace, clock.offset_ns) for trace, clock in zip(view.run.ranks, view.clocks, strict=True)
        ]
        sequence = parts[0].sequence
        for part in parts[1:]:
            sequence = np.intersect1d(sequence, part.sequence)
        at = [np.searchsorted(part.sequence, sequence) for part in parts]
        first = parts[0]
        step, reference = first.step[at[0]], first.reference[at[0]]
        steps, begin, count = np.unique(step, return_index=True, return_counts=True)
        if not len(steps):
            raise CannotTell("the ranks have no step in common.")
        # Per rank; a step's last end is when the rank leaves it.
        times = np.stack([part.times[rows] for part, rows in zip(parts, at, strict=True)])
        leave = np.maximum.reduceat(times[:, :, BucketTime.ENDED], begin, axis=1)
        size = int(np.bincount(count).argmax())
        # The step before must be there, with nothing in between.
        follows = np.zeros(len(steps), np.bool_)
        follows[1:] = sequence[begin[1:]] == sequence[begin[1:] - 1] + 1
        rows = np.flatnonzero(follows & (count == size) & np.isin(steps, view.judged.step))
        places = begin[rows][:, None] + np.arange(size)
        if len(rows):
            rows, places = _usual(rows, places, reference[places])
        whole = (times[:, places][..., : BucketTime.ENDED + 1] > 0).all(axis=(0, 2, 3))
        rows, places = rows[whole], places[whole]
        if len(rows) < LEAST_STEPS:
            raise CannotTell(f"{len(rows)} whole steps can be judged, and a plan needs {LEAST_STEPS}.")
        enqueued = times[:, places, BucketTime.ENQUEUED]
        started = np.maximum(times[:, places, BucketTime.STARTED], enqueued).max(axis=0)
        ended = times[:, places, BucketTime.ENDED].max(axis=0)
        self.steps = steps[rows]
        self.last_handed = enqueued[:, :, -1]
        self.handed = np.maximum.accumulate((enqueued - leave[:, rows - 1, None]) / 1e6, axis=2).swapaxes(
            0, 1
        )
        self.step = (leave[:, rows].max(axis=0) - leave[:, rows - 1].max(axis=0)) / 1e6
        if np.median(self.step) <= 0:
            raise CannotTell("the times of its steps make no sense.")
        # From the step before on, as all ranks have left it.
        origin = leave[:, rows - 1].max(axis=0)[:, None]
        self.started, self.ended = (started - origin) / 1e6, (ended - origin) / 1e6
        stop = (enqueued[:, :, -1].max(axis=0)[:, None] - origin) / 1e6
        self.during = work_alone(np.minimum(self.started, stop), np.minimum(self.ended, stop))
        self.after = work_alone(self.started, self.ended) - self.during
        self.busy = np.stack(
            [busy_before(self.started, self.ended, self.handed[:, who]) for who in range(len(parts))], axis=1
        )
        self.sizes = first.bytes[at[0]][places[0]].astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Buckets:
    """One rank's buckets by sequence, on the common clock."""

    sequence: UInt64
    step: Int64
    reference: UInt64
    bytes: UInt64
    times: Int64


def _buckets(trace: RankTrace, offset_ns: int) -> _Buckets:
    records = trace.of_kind(Kind.BUCKET)
    records = records[(records["flags"] & (Flag.ERROR | Flag.ABANDONED)) == 0]
    sequence, at = np.unique(records["sequence"], return_index=True)
    records = records[at]
    times = records["times"].astype(np.int64)
    return _Buckets(
        sequence,
        records["step"].astype(np.int64),
        records["reference"],
        records["bytes"],
        np.where(times > 0, times + offset_ns, 0),
    )


def _usual(rows: Int64, places: Int64, references: UInt64) -> tuple[Int64, Int64]:
    """The steps with the layout that most of them have."""
    _, which, count = np.unique(references, axis=0, return_inverse=True, return_counts=True)
    usual = which.reshape(-1) == count.argmax()
    return rows[usual], places[usual]


def _ready(view: RunView, rows: Rows, module: int) -> dict[str, tuple[float, float]]:
    """By name, medians over ranks and the steps that have parameter records."""
    index, before, busy = [], [], []
    for who, (trace, clock) in enumerate(zip(view.run.ranks, view.clocks, strict=True)):
        records = trace.of_kind(Kind.PARAMETER)
        records = records[(records["module"] == module) & (records["times"][:, 0] > 0)]
        step = records["step"].astype(np.int64)
        at = np.minimum(np.searchsorted(rows.steps, step), len(rows.steps) - 1)
        known = rows.steps[at] == step
        ready = records["times"][known, 0] + clock.offset_ns
        index.append(records["index"][known].astype(np.int64))
        own = np.minimum(0.0, (ready - rows.last_handed[who, at[known]]) / 1e6)
        before.append(own)
        last = rows.handed[at[known], who, -1]
        until = np.stack([last + own, last], axis=1)
        busy.append(np.diff(busy_before(rows.started[at[known]], rows.ended[at[known]], until), axis=1)[:, 0])
    of, value, shared = np.concatenate(index), np.concatenate(before), np.concatenate(busy)
    names = view.names
    layouts = [(key, each) for key, each in names.layouts.items() if each.module == module]
    name = {
        place: text
        for key, each in layouts
        for place, text in zip(each.parameters, names.parameters(key), strict=True)
    }
    return {
        name[key]: (float(np.median(value[of == key])), float(np.median(shared[of == key])))
        for key in np.unique(of).tolist()
        if key in name
    }


def _core_wait(view: RunView, rows: Rows) -> Float64:
    """Of the steps that have it; all NaN where no rank has."""
    at = np.minimum(np.searchsorted(view.judged.step, rows.steps), len(view.judged.step) - 1)
    delay = view.usage.run_delay[at]
    known = np.isfinite(delay)
    total = np.where(known, delay, 0.0).sum(axis=1)
    return np.where(known.any(axis=1), total / np.maximum(known.sum(axis=1), 1), np.nan)


def _on_one_machine(view: RunView) -> bool:
    if view.links:
        return all(link.loopback for link in view.links)
    hosts = {sidecar.host for sidecar in view.sidecars.values()}
    return len(hosts) == 1
