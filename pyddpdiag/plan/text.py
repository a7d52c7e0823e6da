"""A plan as the terminal prints it, as JSON, or as one self-contained HTML page with its charts."""

from __future__ import annotations

import json
from typing import Final, TextIO

from rich.text import Text

from pyddpdiag.model.words import count, listed, number, percent
from pyddpdiag.plan.plan import WORTHWHILE
from pyddpdiag.plan.settings import MOST_RANKS, Limit, Plan, Row, Scaling
from pyddpdiag.report.charts.chart import Axis, Chart, Interval, Line, Mark, Panel, Points, by_word, plain
from pyddpdiag.report.page import Paragraph, Part, Section
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.report.screen import INDENT, screen_for
from pyddpdiag.report.tables import Table

_LIMITS: Final[dict[Limit, str]] = {
    "latency": "the rounds of the ring, whose latency adds up",
    "bandwidth": "the bytes that pass each link",
    "slowest rank": "waiting for the slowest of so many ranks",
}


def print_plan(found: Plan, file: TextIO, *, as_json: bool = False) -> None:
    """Print a plan as a table, or as JSON (docs/plan.md)."""
    if as_json:
        file.write(json.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n")
        return
    screen = screen_for(file)
    if found.cannot_tell:
        screen.print(Text(f"Cannot tell: {found.cannot_tell}"))
        return
    screen.table(steps_table(found))
    for sentence in sentences(found):
        screen.print(Text(sentence), INDENT)


def sentences(found: Plan) -> list[str]:
    """What is said below the table: how far the run scales, and what cannot be told."""
    said = [scaling_sentence(found.scaling)] if found.scaling is not None else []
    for reason in dict.fromkeys(row.cannot_tell for row in found.rows if row.cannot_tell):
        settings = listed(row.setting for row in found.rows if row.cannot_tell == reason)
        said.append(f"Cannot tell: {settings}: {reason}.")
    return said


def scaling_sentence(scaling: Scaling) -> str:
    """Where scaling ends, and why."""
    doubled = "twice the ranks, each with the same batch, give"
    if scaling.ends_at is None or scaling.limit is None or scaling.limit_ms is None:
        return f"Scaling does not end: with {MOST_RANKS} ranks, {doubled} at least {WORTHWHILE:g} times the throughput."
    beyond = next(point for point in scaling.points if point.ranks == 2 * scaling.ends_at)
    end = "with one rank" if scaling.ends_at == 1 else f"at {scaling.ends_at} ranks"
    return (
        f"Scaling ends {end}: beyond, {doubled} less than {WORTHWHILE:g} times the throughput. With {beyond.ranks}, "
        f"{number(scaling.limit_ms)} ms of a step of {number(beyond.step_ms)} ms are {_LIMITS[scaling.limit]}."
    )


def steps_table(found: Plan) -> Table:
    """All settings that can be told, with their steps."""
    known = [row for row in found.rows if not row.cannot_tell]
    link = ""
    if found.round_ms is not None:
        rate = "" if found.bandwidth_gbit is None else f" and {number(found.bandwidth_gbit)} Gbit/s"
        link = f" Fitted to this run: {number(found.round_ms)} ms for a round of the ring{rate}."
    if found.wire_pace is not None and found.compute_pace is not None and found.compute_pace < 1:
        link += (
            f" Ranks and Gloo share cores: while both go on, buckets take {number(1 / found.wire_pace)} times as long, "
            f"and computing {number(1 / found.compute_pace)} times."
        )
    missed = percent(abs(found.missed_fraction or 0.0))
    return Table(
        f"Step times planned from {count(found.steps, 'recorded step')}",
        {
            "setting": [row.setting for row in known],
            "buckets": [str(row.buckets) for row in known],
            "step ms": [_shown(row.step_ms) for row in known],
            "from": [_shown(row.low_ms) for row in known],
            "to": [_shown(row.high_ms) for row in known],
            "exposed ms": [_shown(row.exposed_ms) for row in known],
            "efficiency": ["" if row.efficiency is None else percent(row.efficiency) for row in known],
        },
        texts=1,
        dim=[row.kind == "recorded" for row in known],
        note=f"The replay misses the run's own step by {missed}.{link} Efficiency: the step of one of its ranks alone "
        "over this one. A calculation: `pyddpdiag help plan` says how far off it was.",
    )


def scaling_table(scaling: Scaling) -> Table:
    """Throughput by number of ranks."""
    return Table(
        "Throughput by number of ranks",
        {
            "ranks": [str(point.ranks) for point in scaling.points],
            "step ms": [number(point.step_ms) for point in scaling.points],
            "efficiency": [percent(point.throughput / point.ranks) for point in scaling.points],
            "times a rank alone": [number(point.throughput) for point in scaling.points],
        },
        texts=0,
    )


def _shown(value: float | None) -> str:
    return "" if value is None else number(value)


_NAMES: Final = {"recorded": "measured", "replayed": "the same, by the model", "planned": "planned"}
_LOOK: Final[dict[str, tuple[str, Mark]]] = {
    "measured": ("same", "diamond"),
    "the same, by the model": ("unsure", "cross"),
    "planned": ("accent", "circle"),
}
_ROW: Final = 26
"""Pixels of a setting."""


def page(found: Plan) -> str:
    """What can be told and what cannot, and the charts with their numbers as tables."""
    if found.cannot_tell:
        return whole_page("Plan", [Paragraph(f"Cannot tell: {found.cannot_tell}")], found.folder)
    said: list[Part | Section] = [Paragraph(sentence) for sentence in sentences(found)]
    return whole_page("Plan", [*said, *_charts(found)], found.folder)


def _charts(found: Plan) -> list[Chart]:
    """The charts that have something to show."""
    rows = [row for row in found.rows if row.step_ms is not None]
    drawn = [_steps(found, rows)] if rows else []
    return [*drawn, *([] if found.scaling is None else [_throughput(found.scaling)])]


def _steps(found: Plan, rows: list[Row]) -> Chart:
    intervals = [
        Interval(
            place,
            row.step_ms or 0.0,
            row.low_ms or 0.0,
            row.high_ms or 0.0,
            f"{row.setting}: {row.step_ms:.4g} ms ({row.low_ms:.4g} to {row.high_ms:.4g}), "
            f"{row.exposed_ms:.4g} ms of it exposed",
        )
        for place, row in enumerate(rows)
    ]
    series = by_word(_LOOK, zip((_NAMES[row.kind] for row in rows), intervals, strict=True))
    labels = [row.setting for row in rows]
    return Chart(
        "plan-steps",
        "The step in each setting",
        "Median steps with their intervals.",
        [Panel(series, Axis("", labels=labels), height=_ROW * len(rows) + 24)],
        Axis("ms", from_zero=True),
        steps_table(found),
    )


def _throughput(scaling: Scaling) -> Chart:
    ranks = [point.ranks for point in scaling.points]
    series: list[Line | Points] = [
        Line("ideal", ranks, ranks, "ideal", "dot"),
        Line("planned", ranks, plain(point.throughput for point in scaling.points), "accent", marks=True),
    ]
    ends = [point for point in scaling.points if point.ranks == scaling.ends_at]
    if ends:
        series.append(
            Points(
                "scaling ends",
                [point.ranks for point in ends],
                plain(point.throughput for point in ends),
                "bad",
                "diamond",
            )
        )
    return Chart(
        "plan-scaling",
        "Throughput by number of ranks",
        scaling_sentence(scaling),
        [Panel(series, Axis("times a rank alone", logarithmic=True), height=280)],
        Axis("ranks", logarithmic=True, ticks=ranks),
        scaling_table(scaling),
    )
