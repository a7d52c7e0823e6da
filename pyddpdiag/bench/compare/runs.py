"""Compares recorded runs: what changed from the first one, by part of a step and by bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import judged_walls
from pyddpdiag.bench.compare.comparison import Change, Comparison, PartChange, Series
from pyddpdiag.bench.intervals import ALIKE, FEWEST, TOO_FEW, WIDE, Estimate, difference_of_rounds
from pyddpdiag.export.run import ExportedRun, read_run
from pyddpdiag.model.cube import NAMES
from pyddpdiag.model.kinds import brief
from pyddpdiag.model.words import count, listed, number, size

MARGIN: Final = 0.1
"""What two runs must differ by: the cost below which a report calls nothing a finding, either."""

_PART_MARGIN: Final = 0.02
"""Of the first run's step: a part that changed by less explains nothing."""

MOST_BUCKETS: Final = 60
_VALUES: Final = 1000
"""Of a long run: stretches of it, so that an interval takes no longer than that."""

_PARTS: Final = ("data_wait", "compute", "late", "communication")


@dataclass(frozen=True)
class _Run:
    label: str
    run: ExportedRun
    wall: Float64
    parts: dict[str, Float64]
    buckets: dict[str, Float64]


def compare_runs(folders: Sequence[Path]) -> Comparison:
    """Compare runs with the first of them.

    Raises:
        TraceError: a folder has no traces, or none can be read.
    """
    runs = [_read(folder, label) for folder, label in zip(folders, _labels(folders), strict=True)]
    base = runs[0]
    changes: list[PartChange] = []
    only: dict[str, tuple[str, ...]] = {}
    notes: list[str] = []
    for other in runs[1:]:
        names = {bucket.bucket: bucket for bucket in base.run.report.buckets}
        common = [name for name in names if name in base.buckets and name in other.buckets]
        shown = {
            name: f"bucket {name[:8]} {size(names[name].bytes)} on the wire" for name in common[:MOST_BUCKETS]
        }
        changes += _changes(base, other, shown)
        for side, against in ((base, other), (other, base)):
            alone = tuple(f"bucket {name[:8]}" for name in side.buckets if name not in against.buckets)
            if alone:
                only[f"{side.label}, not {against.label}"] = alone
        notes += [*_only_in(other, base), *_only_in(base, other), *_notes(base, other, len(common))]
    wide = [change.why for change in changes].count(WIDE)
    if wide:
        notes.append(
            f"{wide} of {len(changes)} rows could hide a difference of {ALIKE - 1:.0%} or more: they "
            "scatter, see the intervals. Record more steps, or on a quieter machine."
        )
    return Comparison(
        tuple(Series(run.label, (), _about(run)) for run in runs),
        (),
        (),
        (),
        only,
        notes=tuple(notes),
        changes=tuple(changes),
    )


def _read(folder: Path, label: str) -> _Run:
    run = read_run(folder, timelines=False)
    steps = run.report.steps
    judged = steps.judged
    _, begin = np.unique(steps.step[judged], return_index=True)
    columns = {name: _means(getattr(steps, f"{name}_ms")[judged], begin) for name in _PARTS}
    _, wall = judged_walls(steps)
    found = run.occurrences
    warm = np.isin(found.step, np.array(steps.left_out, np.int64))
    known = found.complete & ~warm & np.isfinite(found.wire_ms)
    buckets = {
        f"{reference:016x}": found.wire_ms[known & (found.reference == reference)]
        for reference in np.unique(found.reference[known]).tolist()
    }
    return _Run(label, run, wall, columns, buckets)


def _changes(base: _Run, other: _Run, buckets: Mapping[str, str]) -> Iterator[PartChange]:
    """What changed from run to run: the step and its parts, of which the step decides what matters, and `buckets`, by
    their ids what they are called."""
    step = float(np.median(base.wall)) if len(base.wall) else float("nan")
    yield from _change(base, other, "the whole step", base.wall, other.wall, MARGIN * step, step)
    for part in _PARTS:
        before, after = base.parts[part], other.parts[part]
        yield from _change(base, other, NAMES[part], before, after, _PART_MARGIN * step, step)
    for bucket, name in buckets.items():
        before, after = base.buckets[bucket], other.buckets[bucket]
        whole = float(np.median(before))
        yield from _change(base, other, name, before, after, MARGIN * whole, whole)


def _change(
    base: _Run, other: _Run, name: str, before: Float64, after: Float64, least: float, whole: float
) -> Iterator[PartChange]:
    """What takes `before` and `after` so many ms: less than `least` is no change; no difference is small beside the
    `whole`."""
    if not len(before) or not len(after):
        return
    medians = float(np.median(before)), float(np.median(after))
    before, after = _thin(before), _thin(after)
    difference = difference_of_rounds(after.tolist(), before.tolist())
    word, why = _word(difference, least, (ALIKE - 1) * whole, min(len(before), len(after)))
    yield PartChange(base.label, other.label, name, *medians, difference, word, why)


def _word(change: Estimate, least: float, relevant: float, rounds: int) -> tuple[Change, str]:
    """What a change of a part says, and why it is undecided.

    Args:
        change: in ms, with its interval.
        least: what it must be at least.
        relevant: what there must not be if there is no difference.
        rounds: the fewest steps of the two.
    """
    if rounds < FEWEST:
        return "cannot tell", TOO_FEW
    if change.low > 0 and change.median >= least:
        return "more", ""
    if change.high < 0 and change.median <= -least:
        return "less", ""
    if -relevant < change.low and change.high < relevant:
        return "no difference", ""
    return "cannot tell", WIDE


def _only_in(run: _Run, against: _Run) -> list[str]:
    """What is late or slower in one run and not in the other: which of them changed, where and since when."""
    theirs = {(one.kind, one.rank) for one in against.run.report.verdict.findings}
    found = []
    for one in run.run.report.verdict.findings:
        if one.since_step is None or one.severity == "note" or (one.kind, one.rank) in theirs:
            continue
        steps = (
            f"from step {one.since_step} on"
            if one.until_step is None
            else f"steps {one.since_step} to {one.until_step}"
        )
        cost = "" if one.cost_s is None else f", {number(one.cost_s)} s in all"
        found.append(
            f"Only {run.label}: {brief(one)} ({one.kind} {steps}{cost}; confidence: {one.confidence})."
        )
    return found


def _notes(base: _Run, other: _Run, common: int) -> list[str]:
    ours, theirs = base.run.report, other.run.report
    notes = []
    if ours.world_size != theirs.world_size:
        notes.append(
            f"{base.label} has {count(ours.world_size, 'rank')}, {other.label} {theirs.world_size}: their steps are "
            "not the same work."
        )
    if ours.buckets and theirs.buckets and not common:
        notes.append(
            f"{base.label} and {other.label} have no bucket in common: another model, or another layout."
        )
    hosts = [sorted({rank.host for rank in report.ranks if rank.host}) for report in (ours, theirs)]
    if all(hosts) and hosts[0] != hosts[1]:
        notes.append(f"{base.label} ran on {listed(hosts[0], 4)}, {other.label} on {listed(hosts[1], 4)}.")
    notes.append(
        f"{base.label} and {other.label} are one run each. One set of processes is faster than the next by chance, and "
        f"other programs slow one down: steps and buckets that differ by less than {MARGIN:.0%} are not called "
        "different, and intervals know only of the scatter within a run."
    )
    return notes


def _about(run: _Run) -> str:
    report = run.run.report
    step = f"median step {number(float(np.median(run.wall)))} ms" if len(run.wall) else "no step"
    return (
        f"{count(report.world_size, 'rank')}, {count(len(run.wall), 'step')}, {step}. {report.verdict.line}"
    )


def _labels(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths in which all differ; with a number where there are none."""
    parts = [folder.resolve().parts[::-1] for folder in folders]
    for names in zip(*parts, strict=False):
        if len(set(names)) == len(names):
            return list(names)
    return [f"{folder.name} ({place + 1})" for place, folder in enumerate(folders)]


def _means(values: Float64, begin: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Float64:
    """The mean over the ranks of each step; steps in which one is not known are left out."""
    if not len(begin):
        return np.empty(0)
    sizes = np.diff(np.append(begin, len(values)))
    means = np.add.reduceat(values, begin) / sizes
    return np.asarray(means[np.isfinite(means)])


def _thin(values: Float64) -> Float64:
    """At most so many values: medians of stretches."""
    if len(values) <= _VALUES:
        return values
    return np.array([np.median(part) for part in np.array_split(values, _VALUES)])
