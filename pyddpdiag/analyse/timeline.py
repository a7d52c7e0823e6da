"""What each rank did in chosen steps, on one clock: for the picture of a step, and for exports.

Beside the intake, this is the place that sees records: tables of whole runs forget the single event.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyddpdiag.analyse.grouped import stats_by
from pyddpdiag.analyse.passes import Passes
from pyddpdiag.model.details import Events, Float64, GradientNorms, Int64, Lateness, RankTimeline
from pyddpdiag.output import decode
from pyddpdiag.trace.layout import (
    TIMES_USED,
    BackwardTime,
    BucketTime,
    Flag,
    GradientValue,
    Kind,
    PhaseTime,
    Records,
    StepTime,
)
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import CHUNK, arrange


def timeline(trace: RankTrace, offset_ns: int = 0, steps: Int64 | None = None) -> RankTimeline:
    """What a rank did, moved by `offset_ns`, in these steps (sorted); None: in all.

    Phases have no step: with chosen steps, those that touch one of them.
    """

    def of(kind: Kind) -> Records:
        records = trace.of_kind(kind)
        return records if steps is None else records[np.isin(records["step"].astype(np.int64), steps)]

    marks = of(Kind.STEP)
    marks = marks[(marks["flags"] & Flag.NO_BATCH) == 0]
    phases = trace.of_kind(Kind.PHASE)
    if steps is not None:
        begin = np.sort(marks["times"][:, StepTime.WAIT_BEGIN])
        end = np.sort(marks["times"][:, StepTime.END])
        times = phases["times"]
        # Steps do not overlap: a phase touches one if more have begun by its end than had ended at its begin.
        begun = np.searchsorted(begin, times[:, PhaseTime.END], "right")
        phases = phases[begun > np.searchsorted(end, times[:, PhaseTime.BEGIN], "right")]
    buckets, passes = of(Kind.BUCKET), of(Kind.BACKWARD)
    if trace.on_device:
        buckets, passes = _computed(buckets, passes)
    return RankTimeline(
        trace.rank,
        _events(buckets, Kind.BUCKET, offset_ns),
        _events(passes, Kind.BACKWARD, offset_ns),
        _events(marks, Kind.STEP, offset_ns),
        _events(of(Kind.COLLECTIVE), Kind.COLLECTIVE, offset_ns),
        _events(phases, Kind.PHASE, offset_ns),
    )


def _computed(buckets: Records, passes: Records) -> tuple[Records, Records]:
    """The same with the times of the accelerator, which computes on when its host has handed everything over."""
    arranged, of_pass = arrange(buckets), Passes(passes)
    buckets, passes = buckets[arranged.order], passes.copy()
    for begin, rows in arranged.chunks(CHUNK):
        of_pass.match(rows)
        times = buckets["times"][begin : begin + len(rows)]
        times[:, BucketTime.ENQUEUED] = rows.brought
        times[:, BucketTime.STARTED] = rows.started
    passes["times"][:, BackwardTime.FINALIZE_BEGIN] = of_pass.computed
    return buckets, passes


def _events(records: Records, kind: Kind, offset_ns: int) -> Events:
    times = records["times"][:, : TIMES_USED[kind]].astype(np.int64)
    names: tuple[str, ...] = ()
    name: Int64 | None = None
    if kind in (Kind.COLLECTIVE, Kind.PHASE):
        raw, codes = np.unique(records["name"], return_inverse=True)
        names, name = tuple(decode(bytes(each)) or "unknown" for each in raw), codes.astype(np.int64)
    return Events(
        step=records["step"].astype(np.int64),
        reference=records["reference"].copy(),
        group=records["group"].copy(),
        sequence=records["sequence"].copy(),
        bytes=np.minimum(records["bytes"], np.uint64(2**62)).astype(np.int64),
        times=np.where(times > 0, times + offset_ns, 0),
        names=names,
        name=name,
    )


def lateness(timelines: Sequence[RankTimeline], clock_error_ms: float | None) -> Lateness | None:
    """How late each rank brings each bucket, over the steps of these timelines; None if fewer than two ranks tell."""
    brought = [part.buckets.times[:, BucketTime.ENQUEUED] for part in timelines]
    if sum(bool((each > 0).any()) for each in brought) < 2:
        return None
    who = np.repeat(np.arange(len(timelines)), [len(each) for each in brought])
    enqueued = np.concatenate(brought)
    keys = np.stack(
        [
            np.concatenate([getattr(part.buckets, name) for part in timelines])
            for name in ("group", "sequence")
        ]
    )
    known = enqueued > 0
    who, enqueued, keys = who[known], enqueued[known], keys[:, known]
    reference = np.concatenate([part.buckets.reference for part in timelines])[known]
    _, occurrence = np.unique(keys, axis=1, return_inverse=True)
    occurrence = occurrence.reshape(-1)
    first = np.full(int(occurrence.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, occurrence, enqueued)
    # An all-reduce that only one rank has in view tells nothing.
    counted = (np.bincount(occurrence) > 1)[occurrence]
    late = (enqueued - first[occurrence])[counted] / 1e6
    buckets, column = np.unique(reference[counted], return_inverse=True)
    if not len(buckets):
        return None
    cells = stats_by(late, who[counted] * len(buckets) + column, len(timelines) * len(buckets))
    medians = np.array([np.nan if cell.median is None else cell.median for cell in cells])
    steps = np.unique(np.concatenate([part.buckets.step for part in timelines]))
    return Lateness(
        tuple(part.rank for part in timelines),
        tuple(f"{value:016x}" for value in buckets.tolist()),
        medians.reshape(len(timelines), len(buckets)),
        len(steps),
        clock_error_ms,
    )


def gradient_norms(trace: RankTrace) -> GradientNorms:
    """The norms of one rank's own gradients, by step."""
    records = trace.of_kind(Kind.GRADIENT)
    records = records[(records["flags"] & Flag.PARAMETER) == 0]
    values = records["times"]
    steps, place = np.unique(records["step"].astype(np.int64), return_inverse=True)
    squares = _floats(values[:, GradientValue.SUM_SQUARES])
    largest = _floats(values[:, GradientValue.ABSOLUTE_MAXIMUM])
    bad = np.bincount(place, np.maximum(0, values[:, GradientValue.NON_FINITE]), minlength=len(steps))
    with np.errstate(invalid="ignore", over="ignore"):
        norm = np.sqrt(np.bincount(place, squares, minlength=len(steps)))
    maximum = np.zeros(len(steps))
    np.fmax.at(maximum, place, largest)
    unknown = ~np.isfinite(norm) | (bad > 0)
    return GradientNorms(
        rank=np.full(len(steps), trace.rank, np.int64),
        step=steps,
        norm=np.where(unknown, np.nan, norm),
        maximum=np.where(np.isfinite(maximum), maximum, np.nan),
        non_finite=bad.astype(np.int64),
    )


def joined_norms(parts: Sequence[GradientNorms]) -> GradientNorms:
    """The norms of all ranks."""
    return GradientNorms(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in GradientNorms.__dataclass_fields__
        }
    )


def _floats(column: Int64) -> Float64:
    """A column that holds numbers in place of times."""
    return np.ascontiguousarray(column).view(np.float64)
