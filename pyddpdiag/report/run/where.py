"""The picture on the first screen: where a step's time goes on each rank, with what the verdict blames marked."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import Anatomy, anatomy
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import count, milliseconds, number
from pyddpdiag.report.charts.chart import Axis, Chart
from pyddpdiag.report.charts.stacked import stacked
from pyddpdiag.report.culprit import Culprit, beside, culprit
from pyddpdiag.report.run import parts
from pyddpdiag.report.table import Table

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
    steps = int(np.unique(report.steps.step[report.steps.judged]).size)
    labels = [parts.label(found, row) for row in rows]
    return Chart(
        "where",
        "Where the time goes",
        f"The mean of {count(steps, 'step')} on each rank, split into its parts.{parts.said(found, rows)}",
        [
            stacked(
                {part: (parts.name(part, found), parts.COLOURS[part]) for part in shown},
                values,
                labels,
                milliseconds,
                number,
                [] if marked is None else [(marked.part, row) for row in marked.rows(len(rows))],
                "" if marked is None else _said(found, marked, values),
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
