"""The anatomy of a step on each rank over the run, the slow steps, and the map of many ranks.

It begins with what the parts of a step are called and coloured in every chart of a run, and which ranks are drawn
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import FEW, Anatomy, RankMap, alike, anatomy, rank_map
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.model.cube import NAMES, PARTS
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import milliseconds, number, ranges
from pyddpdiag.report.charts.chart import Area, Axis, Chart, Heat, Line, Number, Panel, Points, plain
from pyddpdiag.report.page import Part, Picks
from pyddpdiag.report.tables import Table

COLOURS: Final = {
    "data_wait": "data",
    "compute": "compute",
    "phase": "phase",
    "core": "core",
    "blocked": "blocked",
    "other": "other",
    "late": "late",
    "communication": "wire",
}
LEAST: Final = 0.001
"""Of all time: a part that takes less everywhere is not drawn."""


def name(part: str, found: Anatomy) -> str:
    """What a part is called. Where the processor was not read, nobody knows whether a rank computes."""
    return "compute or asleep" if part == "compute" and not found.split else NAMES[part]


def drawn_parts(found: Anatomy) -> list[str]:
    """The parts that take time on some rank."""
    total = {part: float(np.nansum(found.parts[part])) for part in PARTS}
    least = LEAST * sum(total.values())
    return [part for part in PARTS if total[part] > least or part == "compute"]


def groups(found: Anatomy, report: RunReport) -> list[tuple[int, ...]]:
    """The places of ranks that are drawn as one; those that findings blame stand alone."""
    return alike(found, {finding.rank for finding in report.verdict.findings if finding.rank is not None})


def label(found: Anatomy, group: Sequence[int]) -> str:
    """What a group of ranks is called."""
    mine = [found.ranks[place] for place in group]
    return f"rank {mine[0]}" if len(mine) == 1 else f"{len(mine)} ranks: {ranges(mine)}"


def mean(found: Anatomy, part: str, group: Sequence[int]) -> Float64:
    """A part on the ranks of a group, for each stretch; NaN = known of none."""
    values = found.parts[part][:, list(group)]
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(axis=1)
    count = known.sum(axis=1)
    return np.asarray(np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0))


def said(found: Anatomy, of: Sequence[tuple[int, ...]]) -> str:
    """That ranks are drawn together, if they are."""
    if all(len(group) == 1 for group in of):
        return ""
    return " Ranks that are alike are drawn as one, by their mean."


LABELS: Final = 12
"""At most this many blocks and stretches are named at the axes."""


def map_of_ranks(report: RunReport) -> list[Chart]:
    """The map, where there are more ranks than are drawn one by one."""
    found = rank_map(report.steps) if len(report.ranks) > FEW else None
    return [] if found is None or not np.isfinite(found.extra_ms).any() else [_map_chart(found)]


def _map_chart(found: RankMap) -> Chart:
    blocks = [_span("rank", *both) for both in zip(found.low.tolist(), found.high.tolist(), strict=True)]
    stretches = [_span("step", *both) for both in zip(found.first.tolist(), found.last.tolist(), strict=True)]
    values = [plain(row, 3) for row in found.extra_ms]
    several = bool((found.high > found.low).any())
    hover = [
        [
            f"rank {rank}{f' ({block})' if block.startswith('ranks') else ''}; {stretch}; " + _words(value)
            for rank, stretch, value in zip(slowest, stretches, row, strict=True)
        ]
        for block, slowest, row in zip(blocks, found.slowest.tolist(), values, strict=True)
    ]
    shown = "each row shows the slowest of its ranks, each column" if several else "each column shows"
    return Chart(
        "rank-map",
        "Which ranks need longer, and when",
        "How much longer than the middle rank each rank needs for its own part of a step, in milliseconds: "
        f"{shown} the mean of its steps.",
        [
            Panel(
                [Heat(values, "ms longer", [], hover)],
                _map_axis("", blocks),
                height=min(640, max(160, 16 * len(blocks))),
            )
        ],
        _map_axis("step", [str(first) for first in found.first.tolist()]),
        _map_table(found, blocks),
        legend=False,
    )


def _words(value: Number) -> str:
    if value is None:
        return "not known"
    return f"{milliseconds(value)} longer than the middle rank" if value else "no longer than the middle rank"


def _map_table(found: RankMap, blocks: list[str]) -> Table:
    """Of each block its worst stretch."""
    worst = np.nan_to_num(found.extra_ms, nan=-1.0).argmax(axis=1).tolist()
    rows = list(enumerate(worst))
    columns = {
        "ranks": [block.partition(" ")[2] for block in blocks],
        "slowest rank": [str(found.slowest[row, at]) for row, at in rows],
        "first step": [str(found.first[at]) for _, at in rows],
        "last step": [str(found.last[at]) for _, at in rows],
        "longer there (ms)": [_cell(float(found.extra_ms[row, at])) for row, at in rows],
    }
    return Table("Where ranks need longest, by the worst stretch of each row", columns, 0)


def _map_axis(title: str, names: list[str]) -> Axis:
    at = np.unique(np.linspace(0, len(names) - 1, min(LABELS, len(names))).round().astype(int)).tolist()
    return Axis(title, labels=[names[place] for place in at], at=at)


def _span(what: str, low: int, high: int) -> str:
    return f"{what} {low}" if low == high else f"{what}s {low} to {high}"


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
