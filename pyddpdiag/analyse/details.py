"""One rank's events in single steps, those that are worth a look, and what a page shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.analyse.distinct import joined
from pyddpdiag.analyse.fingerprints import floats
from pyddpdiag.analyse.grouped import stats_by
from pyddpdiag.analyse.spans import Passes
from pyddpdiag.errors import UsageError
from pyddpdiag.model.details import Events, Float64, GradientNorms, Lateness, RankTimeline, RunDetails
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.steps import StepTable
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
from pyddpdiag.trace.rows import CHUNK, Int64, arrange
from pyddpdiag.trace.run import open_run


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
    squares = floats(values[:, GradientValue.SUM_SQUARES])
    largest = floats(values[:, GradientValue.ABSOLUTE_MAXIMUM])
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
    """The norms of all ranks; of none, where no rank was watched."""
    whole, real = np.empty(0, np.int64), np.empty(0)
    return joined([GradientNorms(whole, whole, real, real, whole), *parts])


SLOW: Final = 8
"""How many of the slowest steps are worth a look."""

_PAUSE: Final = 1.5
"""A step with a pause takes at least this many times the median step."""


def steps_to_show(report: RunReport) -> dict[int, str]:
    """Steps worth a look, each with its reason: slow ones, typical ones, and those that findings name; by number."""
    steps = report.steps
    numbers, wall, known = _walls(steps)
    if not len(numbers):
        return {}
    shown: dict[int, str] = {}
    if len(known):
        order = known[np.argsort(-wall[known], kind="stable")]
        for place, at in enumerate(order[:SLOW].tolist()):
            shown[int(numbers[at])] = "the slowest" if place == 0 else "slow"
        shown.setdefault(int(numbers[_nearest(wall, known)]), "typical")
    first = step_of_finding(report)
    if first is not None and shown.get(first) != "the slowest":
        shown[first] = "typical of the first finding"
    there = set(numbers.tolist())
    for finding in report.verdict.findings:
        if finding.since_step in there:
            shown.setdefault(int(finding.since_step or 0), f"{finding.kind} begins")
    for error in report.errors[:1]:
        if error.step in there:
            shown.setdefault(error.step, "an operation failed")
    for number, reason in ((int(numbers[0]), "the first"), (int(numbers[-1]), "the last")):
        shown.setdefault(number, reason)
    return dict(sorted(shown.items()))


def step_to_open(report: RunReport) -> int | None:
    """The step to look at first: one in which the first finding is as it usually is; without one, a typical step."""
    numbers, wall, known = _walls(report.steps)
    found = step_of_finding(report)
    if found is not None:
        return found
    if len(known):
        return int(numbers[_nearest(wall, known)])
    return int(numbers[-1]) if len(numbers) else None


def step_of_finding(report: RunReport) -> int | None:
    """A step that is typical of the first finding; None: there is none, or no step shows it."""
    if not report.verdict.findings:
        return None
    finding = report.verdict.findings[0]
    numbers, wall, known = _walls(report.steps)
    if finding.severity == "error":
        # What fails or is wrong does so in one step.
        return finding.since_step if finding.since_step in set(numbers.tolist()) else None
    until = finding.evidence.get("until_step")
    if finding.since_step is not None:
        known = known[numbers[known] >= finding.since_step]
    if isinstance(until, int):
        known = known[numbers[known] <= until]
    seen = _seen(finding, report.steps, numbers, wall)
    known = known[np.isfinite(seen[known])]
    if kind_of(finding).marks == "phase" and len(known):
        paused = known[wall[known] >= _PAUSE * np.median(wall[known])]
        known = paused if len(paused) else known
    return int(numbers[_nearest(seen, known, wall)]) if len(known) else None


def _seen(finding: Finding, steps: StepTable, numbers: Int64, wall: Float64) -> Float64:
    """How much of the finding there is in each step."""
    part = kind_of(finding).marks
    if part == "own" and finding.rank is not None:
        mine = steps.rank == finding.rank
        own = np.full(len(numbers), np.nan)
        own[np.searchsorted(numbers, steps.step[mine])] = steps.own_ms[mine]
        return own
    column = {"data_wait": steps.data_wait_ms, "communication": steps.communication_ms}.get(part)
    if column is None:
        return wall
    return np.asarray(np.fmin.reduceat(column, np.searchsorted(steps.step, numbers)))


def _nearest(values: Float64, known: Int64, also: Float64 | None = None) -> int:
    """The place whose value, and other value, is nearest to the median of the known ones."""
    apart = np.zeros(len(known))
    for each in (values, also):
        if each is not None:
            middle = float(np.median(each[known]))
            apart += np.abs(each[known] - middle) / max(abs(middle), 1e-9)
    return int(known[np.argmin(apart)])


def _walls(steps: StepTable) -> tuple[Int64, Float64, Int64]:
    """The steps' numbers, what each takes on its slowest rank, and the places of those that are judged and known."""
    numbers, begin = np.unique(steps.step, return_index=True)
    wall = np.fmax.reduceat(steps.wall_ms, begin) if len(numbers) else np.empty(0)
    judged = ~np.isin(numbers, np.array(steps.left_out, np.int64)) & np.isfinite(wall)
    return numbers, wall, np.flatnonzero(judged)


SAMPLED: Final = 400
"""Steps that lateness by bucket rests on, evenly over the run."""

SAMPLED_OF_ALL: Final = 2**15
"""Steps of a rank, at most, over all ranks."""


def run_details(
    report: RunReport, folder: Path, *, step: int | None = None, memory_gb: float = 0.0
) -> RunDetails:
    """What the traces in `folder` hold of the steps worth a look, and of `step`; `memory_gb` as in `open_run`.

    A run that has started again there in the meantime is left alone: its steps are others.

    Raises:
        TraceError: the traces can no longer be read.
        UsageError: there is no such step.
    """
    shown = steps_to_show(report)
    if step is not None:
        if not (report.steps.step == step).any():
            raise UsageError(f"step {step} is in no trace.", hint="leave --step out to see the slow ones.")
        shown = dict(sorted({**shown, step: "asked for"}.items()))
    wanted = np.array(sorted({*shown, *_sample(report).tolist()}), np.int64)
    offsets = {rank.rank: round(rank.clock.offset_ms * 1e6) for rank in report.ranks}
    lines: list[RankTimeline] = []
    norms: list[GradientNorms] = []

    def take(trace: RankTrace) -> None:
        if trace.header.run_id == report.run_id:
            lines.append(timeline(trace, offsets.get(trace.rank, 0), wanted))
            norms.append(gradient_norms(trace))

    open_run(folder, visit=take, memory_gb=memory_gb, steps=wanted)
    clock_errors = [rank.clock.uncertainty_ms for rank in report.ranks]
    clock_error_ms = (
        None
        if None in clock_errors
        else max((each for each in clock_errors if each is not None), default=0.0)
    )
    judged = _without(lines, np.array(report.steps.left_out, np.int64))
    return RunDetails(
        shown,
        tuple(line.take(np.array(sorted(shown), np.int64)) for line in lines),
        lateness(judged, clock_error_ms),
        joined_norms(norms),
        opens=step if step is not None else step_to_open(report),
    )


def _sample(report: RunReport) -> Int64:
    """Judged steps, evenly over the run."""
    numbers = np.unique(report.steps.step[report.steps.judged])
    most = min(SAMPLED, max(1, SAMPLED_OF_ALL // len(report.ranks)))
    if len(numbers) <= most:
        return numbers
    return np.asarray(numbers[np.linspace(0, len(numbers) - 1, most).astype(np.int64)])


def _without(lines: list[RankTimeline], steps: Int64) -> list[RankTimeline]:
    every = [np.unique(line.buckets.step) for line in lines]
    return [line.take(np.setdiff1d(own, steps)) for line, own in zip(lines, every, strict=True)]
