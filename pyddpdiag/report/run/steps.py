"""The anatomy of a step on each rank over the run, and the slow steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import Anatomy, anatomy
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import number
from pyddpdiag.report.charts.chart import Area, Axis, Chart, Line, Panel, Points, plain
from pyddpdiag.report.page import Part, Picks
from pyddpdiag.report.run.parts import COLOURS, drawn_parts, groups, label, mean, name, said
from pyddpdiag.report.run.rank_map import map_of_ranks
from pyddpdiag.report.table import Table

CHOOSER: Final = "waterfall"


def parts(report: RunReport, details: RunDetails | None) -> list[Part]:
    """Step times over the run with the slow ones marked, then each rank's parts and the map of many ranks."""
    found = _anatomy(report, details)
    if not len(found):
        return []
    shown: list[Part] = [_walls(found, report, details)]
    if details and details.shown:
        items = [
            (step, f"step {step}: {reason}{_took(report, step)}") for step, reason in details.shown.items()
        ]
        shown.append(Picks(CHOOSER, items))
    return [*shown, step_chart(report, details), *map_of_ranks(report)]


def step_chart(report: RunReport, details: RunDetails | None = None) -> Chart:
    """The parts of a step on each rank, over the run."""
    found = _anatomy(report, details)
    rows = groups(found, report) if len(found) else []
    shown = drawn_parts(found)
    x = _closed(found.first.tolist(), int(found.last[-1]) + 1 if len(found) else 0)
    values = {part: [mean(found, part, row) for row in rows] for part in shown}
    top = max(
        (float(np.nansum([values[part][at] for part in shown], axis=0).max()) for at in range(len(rows))),
        default=0.0,
    )
    height = 150 if len(rows) <= 2 else 96 if len(rows) <= 4 else 70
    panels = []
    for at, row in enumerate(rows):
        areas = []
        for part in shown:
            heights = plain(values[part][at])
            areas.append(
                Area(name(part, found), x, [*heights, heights[-1]] if heights else [], COLOURS[part])
            )
        axis = Axis("ms" if len(rows) > 4 else "ms per step", from_zero=True)
        panels.append(Panel(areas, axis, label(found, row), height))
    return Chart(
        "step-anatomy",
        "Where each step's time goes",
        f"The mean step of each rank{_stretch(found)}, split into its parts. On the rank that waits least, exposed "
        f"communication is communication itself; the others wait longer than that for the last rank."
        f"{said(found, rows)}",
        panels,
        Axis("step"),
        _table(found, rows, shown, values),
        note=f"The highest step here takes {number(top)} ms." if top else "",
    )


def _anatomy(report: RunReport, details: RunDetails | None) -> Anatomy:
    return anatomy(report.steps, report.cube if details else None)


def _walls(found: Anatomy, report: RunReport, details: RunDetails | None) -> Chart:
    x = found.first.tolist()
    several = bool((found.last > found.first).any())
    title = "median of a stretch" if several else "the slowest rank's step"
    series: list[Line | Points] = [Line(title, x, plain(found.wall), "accent")]
    if several:
        series.append(Line("its slowest step", found.worst_step.tolist(), plain(found.worst), "rest"))
    if details:
        walls = {step: _wall(report, step) for step in details.shown}
        shown = [step for step, wall in walls.items() if wall is not None]
        series.append(
            Points(
                "shown below",
                shown,
                [walls[step] for step in shown],
                "bad",
                "diamond",
                [
                    f"step {step}: {number(walls[step] or 0)} ms; {details.shown[step]}; click to see it"
                    for step in shown
                ],
                shown,
                CHOOSER,
            )
        )
    columns = {
        "first step": [str(value) for value in x],
        "last step": [str(value) for value in found.last.tolist()],
        "median (ms)": [_cell(value) for value in found.wall.tolist()],
        "slowest (ms)": [_cell(value) for value in found.worst.tolist()],
        "slowest step": [str(value) for value in found.worst_step.tolist()],
    }
    return Chart(
        "step-times",
        "Time of each step",
        f"What a step takes on its slowest rank{_stretch(found)}.",
        [Panel(series, Axis("ms", from_zero=True), height=200)],
        Axis("step"),
        Table("Time of each step", columns, 0),
    )


def _table(
    found: Anatomy,
    rows: Sequence[tuple[int, ...]],
    shown: Sequence[str],
    values: Mapping[str, Sequence[Float64]],
) -> Table:
    columns: dict[str, list[str]] = {"rank": [], "first step": [], "last step": []}
    columns |= {f"{name(part, found)} (ms)": [] for part in shown}
    for at, row in enumerate(rows):
        columns["rank"] += [label(found, row).removeprefix("rank ")] * len(found)
        columns["first step"] += [str(step) for step in found.first.tolist()]
        columns["last step"] += [str(step) for step in found.last.tolist()]
        for part in shown:
            columns[f"{name(part, found)} (ms)"] += [_cell(value) for value in values[part][at].tolist()]
    return Table("Where each step's time goes, mean per step", columns, 0)


def _stretch(found: Anatomy) -> str:
    most = int((found.last - found.first + 1).max()) if len(found) else 1
    return f", over stretches of up to {most} steps" if most > 1 else ""


def _closed(x: list[int], end: int) -> list[int]:
    return [*x, end] if x else []


def _wall(report: RunReport, step: int) -> float | None:
    walls = report.steps.wall_ms[report.steps.step == step]
    known = walls[np.isfinite(walls)]
    return float(f"{known.max():.5g}") if len(known) else None


def _took(report: RunReport, step: int) -> str:
    wall = _wall(report, step)
    return "" if wall is None else f", {number(wall)} ms"


def _cell(value: float) -> str:
    return "-" if value != value else f"{value:.5g}"
