"""The anatomy of a step on each rank over the run, and the slow steps."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import PARTS, Anatomy, anatomy
from pyddpdiag.model import RunReport
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.words import number
from pyddpdiag.report.charts.chart import Area, Axis, Chart, Line, Panel, Points, plain
from pyddpdiag.report.page import Part, Picks
from pyddpdiag.report.table import Table

CHOOSER: Final = "waterfall"
MOST_RANKS: Final = 16
"""With more of them, no picture of each can be read; the table of ranks has them all."""

NAMES: Final = {
    "data_wait": "waits for data",
    "compute": "computes",
    "other": "in other collectives",
    "late": "waits for the last rank",
    "communication": "waits for communication",
}
COLOURS: Final = {
    "data_wait": "data",
    "compute": "compute",
    "other": "other",
    "late": "late",
    "communication": "wire",
}


def parts(report: RunReport, details: RunDetails | None) -> list[Part]:
    """Step times over the run with the slow ones marked, then each rank's parts."""
    found = anatomy(report.steps)
    if not len(found):
        return []
    told: list[Part] = [_walls(found, report, details)]
    if details and details.shown:
        items = [
            (step, f"step {step}: {reason}{_took(report, step)}") for step, reason in details.shown.items()
        ]
        told.append(Picks(CHOOSER, "Show below:", items))
    told.append(step_chart(report))
    return told


def step_chart(report: RunReport) -> Chart:
    """The parts of a step on each rank, over the run."""
    found = anatomy(report.steps)
    ranks = _shown_ranks(found, report)
    stretch = _stretch(found)
    x = _closed(found.first.tolist(), int(found.last[-1]) + 1 if len(found) else 0)
    top = max(
        (float(np.nansum([found.parts[name][:, who] for name in PARTS], axis=0).max()) for who in ranks),
        default=0.0,
    )
    panels = []
    for who in ranks:
        areas = []
        for name in PARTS:
            values = plain(found.parts[name][:, who])
            areas.append(Area(NAMES[name], x, [*values, values[-1]] if values else [], COLOURS[name]))
        height = 150 if len(ranks) <= 2 else 96 if len(ranks) <= 4 else 70
        panels.append(
            Panel(
                areas,
                Axis("ms" if len(ranks) > 4 else "ms per step", from_zero=True),
                f"rank {found.ranks[who]}",
                height,
            )
        )
    left = (
        ""
        if len(ranks) == len(found.ranks)
        else f" {len(ranks)} of {len(found.ranks)} ranks are shown: those that are late most, and the first ones."
    )
    return Chart(
        "step-anatomy",
        "Where each step's time goes",
        f"The mean step of each rank{stretch}, split into its parts. What is exposed of communication on the rank that "
        f"waits least is communication itself; what others wait beyond that is for the last rank.{left}",
        panels,
        Axis("step"),
        _table(found, ranks),
        note=f"The highest step here takes {number(top)} ms." if top else "",
    )


def _walls(found: Anatomy, report: RunReport, details: RunDetails | None) -> Chart:
    x = found.first.tolist()
    several = bool((found.last > found.first).any())
    name = "median of a stretch" if several else "the slowest rank's step"
    series: list[Line | Points] = [Line(name, x, plain(found.wall), "accent")]
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


def _table(found: Anatomy, ranks: list[int]) -> Table:
    columns: dict[str, list[str]] = {"rank": [], "first step": [], "last step": []}
    for name in PARTS:
        columns[f"{NAMES[name]} (ms)"] = []
    for who in ranks:
        for at in range(len(found)):
            columns["rank"].append(str(found.ranks[who]))
            columns["first step"].append(str(found.first[at]))
            columns["last step"].append(str(found.last[at]))
            for name in PARTS:
                columns[f"{NAMES[name]} (ms)"].append(_cell(float(found.parts[name][at, who])))
    return Table("Where each step's time goes, mean per step", columns, 0)


def _shown_ranks(found: Anatomy, report: RunReport) -> list[int]:
    """Places of the ranks to show: those that findings blame and that come last most often, then the first."""
    if len(found.ranks) <= MOST_RANKS:
        return list(range(len(found.ranks)))
    blamed = [finding.rank for finding in report.verdict.findings if finding.rank is not None]
    last = sorted(report.ranks, key=lambda rank: -rank.last_arrivals)
    order = dict.fromkeys([*blamed, *(rank.rank for rank in last[: MOST_RANKS // 2]), *found.ranks])
    places = {rank: place for place, rank in enumerate(found.ranks)}
    return sorted(places[rank] for rank in list(order)[:MOST_RANKS] if rank in places)


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
