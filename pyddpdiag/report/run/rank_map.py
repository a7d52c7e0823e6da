"""The map of many ranks: which of them need longer than the others, and when."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import FEW, RankMap, rank_map
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import milliseconds
from pyddpdiag.report.charts.chart import Axis, Chart, Heat, Number, Panel, plain
from pyddpdiag.report.table import Table

LABELS: Final = 12
"""At most this many blocks and stretches are named at the axes."""


def map_of_ranks(report: RunReport) -> list[Chart]:
    """The map, where there are more ranks than are drawn one by one."""
    found = rank_map(report.steps) if len(report.ranks) > FEW else None
    return [] if found is None or not np.isfinite(found.extra_ms).any() else [_chart(found)]


def _chart(found: RankMap) -> Chart:
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
                _axis("", blocks),
                height=min(640, max(160, 16 * len(blocks))),
            )
        ],
        _axis("step", [str(first) for first in found.first.tolist()]),
        _table(found, blocks),
        legend=False,
    )


def _words(value: Number) -> str:
    if value is None:
        return "not known"
    return f"{milliseconds(value)} longer than the middle rank" if value else "no longer than the middle rank"


def _table(found: RankMap, blocks: list[str]) -> Table:
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


def _axis(title: str, names: list[str]) -> Axis:
    at = np.unique(np.linspace(0, len(names) - 1, min(LABELS, len(names))).round().astype(int)).tolist()
    return Axis(title, labels=[names[place] for place in at], at=at)


def _span(what: str, low: int, high: int) -> str:
    return f"{what} {low}" if low == high else f"{what}s {low} to {high}"


def _cell(value: float) -> str:
    return "-" if value != value else f"{value:.4g}"
