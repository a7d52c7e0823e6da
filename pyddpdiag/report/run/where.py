"""The picture on the first screen: where a step's time goes on each rank, with what the verdict blames marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import Anatomy, anatomy
from pyddpdiag.model import RunReport
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.words import count, milliseconds, number
from pyddpdiag.report.charts.chart import Axis, Callout, Chart, Panel, Spans
from pyddpdiag.report.culprit import Culprit, beside, culprit
from pyddpdiag.report.run import parts
from pyddpdiag.report.table import Table

_ROW: Final = 34
"""Pixels of a bar."""

_HARDLY: Final = 0.02


def where_chart(report: RunReport, details: RunDetails | None) -> Chart | None:
    """The mean step of each rank as a bar of its parts; None where no step is known."""
    found = anatomy(report.steps, report.cube if details else None, stretches=1)
    if not len(found):
        return None
    rows = parts.groups(found, report)
    shown = parts.drawn_parts(found)
    values = {part: [_known(parts.mean(found, part, row)[0]) for row in rows] for part in shown}
    marked = culprit(report, [[found.ranks[place] for place in row] for row in rows], values)
    lanes = [place + (marked is not None and place > marked.row) for place in range(len(rows))]
    series = [
        each for part in shown for each in _series(part, found, values, lanes, rows, marked) if each.start
    ]
    steps = int(np.unique(report.steps.step[report.steps.judged]).size)
    labels = [parts.label(found, row) for row in rows]
    return Chart(
        "where",
        "Where the time goes",
        f"The mean of {count(steps, 'step')} on each rank, split into its parts.{parts.said(found, rows)}",
        [
            Panel(
                series,
                Axis("", labels=labels, at=lanes),
                height=_ROW * (len(rows) + (marked is not None)) + 8,
                callouts=_callouts(found, marked, values, lanes),
            )
        ],
        Axis("ms per step", from_zero=True),
        Table(
            "Where the time goes: milliseconds of the mean step",
            {
                "rank": labels,
                **{parts.name(part, found): [number(value) for value in values[part]] for part in shown},
            },
            1,
        ),
    )


def _series(
    part: str,
    found: Anatomy,
    values: dict[str, list[float]],
    lanes: Sequence[int],
    rows: Sequence[tuple[int, ...]],
    blamed: Culprit | None,
) -> list[Spans]:
    """One part of all bars: what is marked of it, and the rest."""
    name = parts.name(part, found)
    before = list(values)[: list(values).index(part)]
    made = []
    for marked in (False, True):
        chosen = [
            place
            for place in range(len(rows))
            if values[part][place] > 0.0 and marked == _is_marked(blamed, part, place)
        ]
        start = [sum(values[other][place] for other in before) for place in chosen]
        took = [values[part][place] for place in chosen]
        made.append(
            Spans(
                name,
                start,
                [begin + each for begin, each in zip(start, took, strict=True)],
                [lanes[place] for place in chosen],
                parts.COLOURS[part],
                [
                    f"{parts.label(found, rows[place])}; {name}: {milliseconds(values[part][place])}"
                    for place in chosen
                ],
                list(range(len(chosen))),
                [number(each) for each in took],
                marked,
            )
        )
    return made


def _is_marked(culprit: Culprit | None, part: str, place: int) -> bool:
    return culprit is not None and culprit.part == part and (culprit.everywhere or culprit.row == place)


def _callouts(
    found: Anatomy, marked: Culprit | None, values: dict[str, list[float]], lanes: Sequence[int]
) -> list[Callout]:
    if marked is None:
        return []
    before = list(values)[: list(values).index(marked.part)]
    start = sum(values[part][marked.row] for part in before)
    whole = max(sum(each[place] for each in values.values()) for place in range(len(lanes)))
    middle = start + values[marked.part][marked.row] / 2
    text = _said(found, marked, values)
    return [Callout(middle, lanes[marked.row] + 1, text, "start" if middle < whole / 2 else "end")]


def _said(found: Anatomy, marked: Culprit, values: dict[str, list[float]]) -> str:
    """What is marked, in words."""
    part, finding, mine = marked.part, marked.finding, values[marked.part]
    if marked.everywhere:
        return f"every rank, {parts.name(part, found)}: {milliseconds(float(np.mean(mine)))}"
    if kind_of(finding).marks != "own":
        return f"rank {finding.rank}, {parts.name(part, found)}: {milliseconds(mine[marked.row])}"
    others = beside(mine, marked.row)
    less = "hardly" if others < _HARDLY * mine[marked.row] else milliseconds(others)
    on_disk = finding.cause == "disk" and part == "blocked"
    does = "waiting for a disk" if on_disk else parts.name(part, found)
    return f"rank {finding.rank}, {does}: {milliseconds(mine[marked.row])}, the others {less}"


def _known(value: float) -> float:
    return float(value) if np.isfinite(value) else 0.0
