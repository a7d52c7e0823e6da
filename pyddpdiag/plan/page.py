"""A plan as one self-contained HTML page, with each setting's step and throughput by number of ranks as charts."""

from __future__ import annotations

from typing import Final

from pyddpdiag.plan.settings import Plan, Row, Scaling
from pyddpdiag.plan.text import scaling_sentence, scaling_table, sentences, steps_table
from pyddpdiag.report.charts.chart import Axis, Chart, Interval, Line, Mark, Panel, Points, by_word, plain
from pyddpdiag.report.page import Paragraph, Part, Section
from pyddpdiag.report.page import page as whole_page

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
