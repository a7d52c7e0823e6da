"""One step over all ranks: what the program does, and each bucket from its hand-over to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import FEW, anatomy
from pyddpdiag.model import RunReport
from pyddpdiag.model.details import Events, RankTimeline, RunDetails
from pyddpdiag.model.words import listed, milliseconds, number, size
from pyddpdiag.report.charts.chart import Axis, Bar, Chart, Choice, Panel, Spans
from pyddpdiag.report.events import lanes, last_arrivals, moments
from pyddpdiag.report.page import Paragraph, Part
from pyddpdiag.report.run.parts import groups
from pyddpdiag.report.run.steps import CHOOSER
from pyddpdiag.report.table import Table
from pyddpdiag.trace.layout import BackwardTime, BucketTime, CollectiveTime, PhaseTime, StepTime

MOST_SPANS: Final = 9_000
"""Of all steps together, which with their tables take less than 2 MB of a page."""

NAMED_PARAMETERS: Final = 6

LEAST_SLEEP: Final = 0.1
"""Of the step."""

_OPEN_NS: Final = 1_000_000
"""How far beyond the step's newest time an operation is drawn that has not ended."""

REST: Final = "rest of the script"
COLOURS: Final = {
    "data": "data",
    "forward": "forward",
    "backward": "compute",
    "forward and backward": "compute",
    "waits for buckets": "rest",
    REST: "optimizer",
    "phase of the program": "phase",
    "bucket: waiting for the last rank": "late",
    "bucket: in Gloo's queue": "queue",
    "bucket: on the wire": "wire",
    "has not ended": "bad",
    "other collective": "other",
}


@dataclass
class _Drawn:
    """The bars of one step by name, in ms since its begin, and what the lanes are called."""

    zero: int
    bars: dict[str, list[Bar]] = field(default_factory=dict)
    lanes: int = 0
    names: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def add(self, name: str, begin: int, end: int, lane: int, label: str) -> None:
        """A bar from `begin` to `end`, ns; nothing if one of them is not known."""
        if 0 < begin < end:
            bar = Bar((begin - self.zero) / 1e6, (end - self.zero) / 1e6, lane, label)
            self.bars.setdefault(name, []).append(bar)


def parts(report: RunReport, details: RunDetails, most: int | None = None) -> list[Part]:
    """The steps worth a look, of which one is shown at a time; `most`: no more than so many, None: all."""
    names = {bucket.bucket: listed(bucket.parameters, NAMED_PARAMETERS) for bucket in report.buckets}
    charts: dict[int, Chart] = {}
    alike = _kinds(report, details)
    left = MOST_SPANS
    order = sorted(
        details.shown, key=lambda step: (step != details.opens, details.shown[step] != "the slowest", step)
    )
    for step in order:
        if len(charts) == most:
            break
        chart = _chart(
            step, details.shown[step], details.timelines, names, alike, _sleepers(report, details, step)
        )
        left -= sum(len(series.bars) for series in chart.panels[0].series if isinstance(series, Spans))
        if charts and left < 0:
            break
        if not chart.empty:
            charts[step] = chart
    if not charts:
        return [Paragraph("No trace holds the times of a single step.", dim=True)]
    steps = [step for step in order if step in charts]
    labels = [f"{step} ({details.shown[step]})" for step in steps]
    return [
        Choice(CHOOSER, "One step over all ranks", "Step", labels, steps, [charts[step] for step in steps])
    ]


def _kinds(report: RunReport, details: RunDetails) -> dict[int, int]:
    """Ranks to draw for all that are alike over the run, each with how many these are; blamed ones stand alone."""
    found = anatomy(report.steps, report.cube, stretches=1)
    if not len(found):
        return {}
    return {found.ranks[group[0]]: len(group) for group in groups(found, report)}


def _sleepers(report: RunReport, details: RunDetails, step: int) -> dict[int, float]:
    """How long ranks slept in a step, in ms, as far as it is known and worth a word."""
    found = anatomy(report.steps.take(report.steps.step == step), report.cube, stretches=1)
    if not len(found) or not found.split:
        return {}
    asleep = np.nan_to_num(found.parts["blocked"][0])
    return {
        rank: ms
        for rank, ms in zip(found.ranks, asleep.tolist(), strict=True)
        if ms > LEAST_SLEEP * float(found.worst[0])
    }


def _chart(
    step: int,
    reason: str,
    timelines: Sequence[RankTimeline],
    names: Mapping[str, str],
    alike: Mapping[int, int],
    asleep: Mapping[int, float],
) -> Chart:
    here = [line.take(np.array([step])) for line in timelines]
    known = [line for line in here if len(line.buckets) or len(line.steps) or len(line.passes)]
    ranks = _some(known, alike)
    begins = [_begin(line) for line in ranks]
    drawn = _Drawn(min((begin for begin in begins if begin), default=0))
    everyone = last_arrivals(known)
    newest = max((_end(line) for line in known), default=0) + _OPEN_NS
    for line in ranks:
        _rank(drawn, line, everyone, names, newest)
        if line.rank in asleep:
            drawn.names[-1] += f", asleep: {milliseconds(asleep[line.rank])}"
        like = alike.get(line.rank, 1) - 1
        if like and len(ranks) < len(known):
            drawn.names[-1] += f", like {like} more"
    series = [Spans(name, drawn.bars[name], COLOURS[name]) for name in COLOURS if name in drawn.bars]
    left = (
        f" {len(ranks)} of {len(known)} ranks are shown: one of each kind that is alike over the run, those that "
        "findings blame, and the last to bring a bucket."
        if len(ranks) < len(known)
        else ""
    )
    height = min(1400, max(180, 16 * drawn.lanes + 20))
    return Chart(
        f"{CHOOSER}-{step}",
        f"Step {step} over all ranks ({reason})",
        "For each rank, the program on top and its buckets below, on the run's common clock. A bucket waits until the "
        f"last rank brings it, then in Gloo's queue, then it is on the wire.{left}",
        [Panel(series, Axis("", labels=drawn.names, at=drawn.places), height=height)],
        Axis("ms since the step began"),
        _table(step, drawn),
    )


def _rank(
    drawn: _Drawn,
    line: RankTimeline,
    everyone: Mapping[tuple[int, int], tuple[int, int]],
    names: Mapping[str, str],
    newest: int,
) -> None:
    """One rank's lanes: the program, then as many as its overlapping operations need."""
    top, who = drawn.lanes, f"rank {line.rank}"
    _program(drawn, line, top, who)
    operations = _operations(line, newest)
    places = lanes([(begin, end) for begin, end, *_ in operations])
    for (begin, end, place, kind), lane in zip(operations, places, strict=True):
        if kind == "collective":
            _collective(drawn, line.collectives, place, (begin, end), top + 1 + lane, who)
        else:
            _bucket(drawn, line.buckets, place, newest, top + 1 + lane, who, everyone, names)
    drawn.names.append(who)
    drawn.places.append(top)
    drawn.lanes = top + 3 + max(places, default=-1)


def _program(drawn: _Drawn, line: RankTimeline, lane: int, who: str) -> None:
    done = 0
    start = 0
    for times in line.steps.times.tolist():
        drawn.add(
            "data",
            times[StepTime.WAIT_BEGIN],
            times[StepTime.BEGIN],
            lane,
            f"{who}; waits for data",
        )
        start = times[StepTime.BEGIN]
    for times in line.passes.times.tolist():
        forward, end = times[BackwardTime.FORWARD_BEGIN], times[BackwardTime.FORWARD_END]
        begin = times[BackwardTime.BEGIN] or times[BackwardTime.FIRST_GRADIENT] or end
        over = times[BackwardTime.FINALIZE_BEGIN]
        drawn.add(REST, max(start, done), forward, lane, f"{who}; in the script, before forward")
        drawn.add("forward", forward, end, lane, f"{who}; forward")
        if begin:
            drawn.add("backward", begin, over, lane, f"{who}; backward")
        else:
            drawn.add("forward and backward", start, over, lane, f"{who}; forward and backward")
        drawn.add(
            "waits for buckets", over, times[BackwardTime.FINALIZE_END], lane, f"{who}; waits for buckets"
        )
        done = max(done, times[BackwardTime.FINALIZE_END])
    for times in line.steps.times.tolist():
        drawn.add(REST, done, times[StepTime.END], lane, f"{who}; optimizer and the rest")
    first, last = _begin(line), _end(line)
    for place, times in enumerate(line.phases.times.tolist()):
        begin, end = max(first, times[PhaseTime.BEGIN]), min(last, times[PhaseTime.END])
        name = line.phases.name_of(place)
        drawn.add("phase of the program", begin, end, lane, f"{who}; phase {name}")


def _bucket(
    drawn: _Drawn,
    buckets: Events,
    place: int,
    newest: int,
    lane: int,
    who: str,
    everyone: Mapping[tuple[int, int], tuple[int, int]],
    names: Mapping[str, str],
) -> None:
    reference = f"{int(buckets.reference[place]):016x}"
    about = f"{who}; bucket {reference[:8]}, {size(int(buckets.bytes[place]))}; {names.get(reference, '')}"
    if not buckets.times[place, BucketTime.ENDED]:
        enqueued = int(buckets.times[place, BucketTime.ENQUEUED])
        drawn.add("has not ended", enqueued, newest, lane, f"{about}; has not ended")
        return
    arrived, _ = everyone[int(buckets.group[place]), int(buckets.sequence[place])]
    enqueued, last, begun, ended = moments(buckets, place, arrived)
    text = (
        f"{about}; waits {number((last - enqueued) / 1e6)} ms for the last rank; "
        f"{number((begun - last) / 1e6)} ms in the queue; {number((ended - begun) / 1e6)} ms on the wire"
    )
    drawn.add("bucket: waiting for the last rank", enqueued, last, lane, text)
    drawn.add("bucket: in Gloo's queue", last, begun, lane, text)
    drawn.add("bucket: on the wire", begun, ended, lane, text)


def _collective(
    drawn: _Drawn, events: Events, place: int, span: tuple[int, int], lane: int, who: str
) -> None:
    name = events.name_of(place)
    drawn.add(
        "other collective", span[0], span[1], lane, f"{who}; {name}, {number((span[1] - span[0]) / 1e6)} ms"
    )


def _operations(line: RankTimeline, newest: int) -> list[tuple[int, int, int, str]]:
    """Begin, end, place and kind of what overlaps with the program; what has not ended lasts to the end of the step."""
    found = []
    for place, times in enumerate(line.buckets.times.tolist()):
        begin, end = times[BucketTime.ENQUEUED], times[BucketTime.ENDED] or newest
        if begin:
            found.append((begin, max(begin, end), place, "bucket"))
    for place, times in enumerate(line.collectives.times.tolist()):
        begin, end = times[CollectiveTime.STARTED], times[CollectiveTime.ENDED] or newest
        if begin:
            found.append((begin, max(begin, end), place, "collective"))
    return found


def _some(lines: Sequence[RankTimeline], alike: Mapping[int, int]) -> list[RankTimeline]:
    if len(lines) <= FEW:
        return list(lines)
    brought = {line.rank: int(line.buckets.times[:, BucketTime.ENQUEUED].max(initial=0)) for line in lines}
    chosen = {*alike, max(brought, key=lambda rank: brought[rank])} if alike else set(list(brought)[:FEW])
    return [line for line in lines if line.rank in chosen]


def _begin(line: RankTimeline) -> int:
    """When a rank's step began, as far as is known; 0 = not known."""
    parts = (line.steps.times[:, :1], line.passes.times[:, :5], line.buckets.times[:, :2])
    times = np.concatenate([part.ravel() for part in parts])
    return int(times[times > 0].min()) if (times > 0).any() else 0


def _end(line: RankTimeline) -> int:
    parts = (line.steps.times, line.passes.times[:, :4], line.buckets.times[:, :5], line.collectives.times)
    return max(int(part.max(initial=0)) for part in parts)


def _table(step: int, drawn: _Drawn) -> Table:
    rows = sorted((bar.start, bar.end, name, bar.hover) for name, bars in drawn.bars.items() for bar in bars)
    return Table(
        f"Step {step}: every span, milliseconds since the step began",
        {
            "rank": [label.partition("; ")[0].removeprefix("rank ") for *_, label in rows],
            "what": [name for _, _, name, _ in rows],
            "begins": [f"{begin:.3f}" for begin, *_ in rows],
            "ends": [f"{end:.3f}" for _, end, *_ in rows],
            "takes": [f"{end - begin:.3f}" for begin, end, *_ in rows],
            " about": [label.partition("; ")[2].partition("; waits ")[0] for *_, label in rows],
        },
        2,
    )
