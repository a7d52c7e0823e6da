"""One step over all ranks: what the program does, and each bucket from its hand-over to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import FEW, anatomy
from pyddpdiag.model.details import Events, RankTimeline, RunDetails
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import listed, milliseconds, number, size
from pyddpdiag.report.charts.chart import Axis, Bar, Chart, Choice, Panel, Spans
from pyddpdiag.report.events import lanes, last_arrivals, moments
from pyddpdiag.report.page import Paragraph, Part
from pyddpdiag.report.run.steps import CHOOSER, groups
from pyddpdiag.report.tables import Table
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
    """The bars of one step by name, in ms since its begin, and what the lanes are called.

    `newest`: until then what has not ended is drawn, ns. `arrivals`: of the last rank with each bucket.
    """

    zero: int
    newest: int
    arrivals: Mapping[tuple[int, int], tuple[int, int]]
    parameters: Mapping[str, str]
    bars: dict[str, list[Bar]] = field(default_factory=dict)
    lanes: int = 0
    names: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def add(self, name: str, begin: int, end: int, lane: int, label: str) -> None:
        """A bar of the latest rank from `begin` to `end`, ns; nothing if one of them is not known."""
        if 0 < begin < end:
            label = f"{self.names[-1]}; {label}"
            bar = Bar((begin - self.zero) / 1e6, (end - self.zero) / 1e6, lane, label)
            self.bars.setdefault(name, []).append(bar)

    def rank(self, line: RankTimeline) -> None:
        """One rank's lanes: the program, then as many as its overlapping operations need."""
        top = self.lanes
        self.names.append(f"rank {line.rank}")
        self.places.append(top)
        self._program(line, top)
        found = []
        for events, first, last, draw in (
            (line.buckets, BucketTime.ENQUEUED, BucketTime.ENDED, self._bucket),
            (line.collectives, CollectiveTime.STARTED, CollectiveTime.ENDED, self._collective),
        ):
            for place, times in enumerate(events.times.tolist()):
                if begin := times[first]:
                    found.append((begin, max(begin, times[last] or self.newest), draw, events, place))
        places = lanes([(begin, end) for begin, end, *_ in found])
        for (begin, end, draw, events, place), lane in zip(found, places, strict=True):
            draw(events, place, begin, end, top + 1 + lane)
        self.lanes = top + 3 + max(places, default=-1)

    def _program(self, line: RankTimeline, lane: int) -> None:
        done = start = 0
        for times in line.steps.times.tolist():
            start = times[StepTime.BEGIN]
            self.add("data", times[StepTime.WAIT_BEGIN], start, lane, "waits for data")
        for times in line.passes.times.tolist():
            forward, end = times[BackwardTime.FORWARD_BEGIN], times[BackwardTime.FORWARD_END]
            begin = times[BackwardTime.BEGIN] or times[BackwardTime.FIRST_GRADIENT] or end
            over, left = times[BackwardTime.FINALIZE_BEGIN], times[BackwardTime.FINALIZE_END]
            self.add(REST, max(start, done), forward, lane, "in the script, before forward")
            self.add("forward", forward, end, lane, "forward")
            name = "backward" if begin else "forward and backward"
            self.add(name, begin or start, over, lane, name)
            self.add("waits for buckets", over, left, lane, "waits for buckets")
            done = max(done, left)
        for times in line.steps.times.tolist():
            self.add(REST, done, times[StepTime.END], lane, "optimizer and the rest")
        first, last = _begin(line), _end(line)
        for place, times in enumerate(line.phases.times.tolist()):
            begin, end = max(first, times[PhaseTime.BEGIN]), min(last, times[PhaseTime.END])
            self.add("phase of the program", begin, end, lane, f"phase {line.phases.name_of(place)}")

    def _bucket(self, buckets: Events, place: int, begin: int, end: int, lane: int) -> None:
        reference = f"{int(buckets.reference[place]):016x}"
        about = (
            f"bucket {reference[:8]}, {size(int(buckets.bytes[place]))}; {self.parameters.get(reference, '')}"
        )
        if not buckets.times[place, BucketTime.ENDED]:
            self.add("has not ended", begin, end, lane, f"{about}; has not ended")
            return
        arrived, _ = self.arrivals[int(buckets.group[place]), int(buckets.sequence[place])]
        enqueued, last, begun, ended = moments(buckets, place, arrived)
        text = (
            f"{about}; waits {number((last - enqueued) / 1e6)} ms for the last rank; "
            f"{number((begun - last) / 1e6)} ms in the queue; {number((ended - begun) / 1e6)} ms on the wire"
        )
        self.add("bucket: waiting for the last rank", enqueued, last, lane, text)
        self.add("bucket: in Gloo's queue", last, begun, lane, text)
        self.add("bucket: on the wire", begun, ended, lane, text)

    def _collective(self, events: Events, place: int, begin: int, end: int, lane: int) -> None:
        about = f"{events.name_of(place)}, {number((end - begin) / 1e6)} ms"
        self.add("other collective", begin, end, lane, about)


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
    newest = max((_end(line) for line in known), default=0) + _OPEN_NS
    zero = min((begin for begin in begins if begin), default=0)
    drawn = _Drawn(zero, newest, last_arrivals(known), names)
    for line in ranks:
        drawn.rank(line)
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
