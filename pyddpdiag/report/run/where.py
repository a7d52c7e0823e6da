"""The picture on the first screen: where a step's time goes on each rank, with what the verdict blames marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import Anatomy, anatomy
from pyddpdiag.model import Finding, RunReport
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.words import count, milliseconds, number
from pyddpdiag.report.charts.chart import Axis, Callout, Chart, Panel, Spans
from pyddpdiag.report.run import parts
from pyddpdiag.report.table import Table

_ROW: Final = 34
"""Pixels of a bar."""

_HARDLY: Final = 0.02

_OF_CAUSE: Final = {
    "compute": "compute",
    "data": "data_wait",
    "core": "core",
    "disk": "blocked",
    "device": "compute",
    "blocked": "blocked",
}
_OWN: Final = ("data_wait", "compute", "phase", "core", "blocked")


@dataclass(frozen=True)
class _Culprit:
    """What is marked: a part of the bar in `row`, in all rows if `everywhere`."""

    row: int
    part: str
    text: str
    everywhere: bool = False


def where_chart(report: RunReport, details: RunDetails | None) -> Chart | None:
    """The mean step of each rank as a bar of its parts; None where no step is known."""
    found = anatomy(report.steps, report.cube if details else None, stretches=1)
    if not len(found):
        return None
    rows = parts.groups(found, report)
    shown = parts.drawn_parts(found)
    values = {part: [_known(parts.mean(found, part, row)[0]) for row in rows] for part in shown}
    culprit = _culprit(report, found, rows, values)
    lanes = [place + (culprit is not None and place > culprit.row) for place in range(len(rows))]
    series = [
        each for part in shown for each in _series(part, found, values, lanes, rows, culprit) if each.start
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
                height=_ROW * (len(rows) + (culprit is not None)) + 8,
                callouts=_callouts(culprit, values, lanes),
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
    culprit: _Culprit | None,
) -> list[Spans]:
    """One part of all bars: what is marked of it, and the rest."""
    name = parts.name(part, found)
    before = list(values)[: list(values).index(part)]
    made = []
    for marked in (False, True):
        chosen = [
            place
            for place in range(len(rows))
            if values[part][place] > 0.0 and marked == _is_marked(culprit, part, place)
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


def _is_marked(culprit: _Culprit | None, part: str, place: int) -> bool:
    return culprit is not None and culprit.part == part and (culprit.everywhere or culprit.row == place)


def _callouts(
    culprit: _Culprit | None, values: dict[str, list[float]], lanes: Sequence[int]
) -> list[Callout]:
    if culprit is None:
        return []
    before = list(values)[: list(values).index(culprit.part)]
    start = sum(values[part][culprit.row] for part in before)
    whole = max(sum(each[place] for each in values.values()) for place in range(len(lanes)))
    middle = start + values[culprit.part][culprit.row] / 2
    return [Callout(middle, lanes[culprit.row] + 1, culprit.text, "start" if middle < whole / 2 else "end")]


def _culprit(
    report: RunReport, found: Anatomy, rows: Sequence[tuple[int, ...]], values: dict[str, list[float]]
) -> _Culprit | None:
    """What the first finding about time blames, if it can be seen in the bars."""
    row_of = {found.ranks[place]: at for at, row in enumerate(rows) for place in row}
    for finding in report.verdict.findings:
        if finding.severity == "note":
            continue
        culprit = _of_rank(finding, found, row_of, values) or _of_all(finding, found, row_of, values)
        if culprit is not None:
            return culprit
    return None


def _of_rank(
    finding: Finding, found: Anatomy, row_of: dict[int, int], values: dict[str, list[float]]
) -> _Culprit | None:
    """A rank that the others wait for: the part of its own time that it has more of than they."""
    if kind_of(finding).marks != "own" or finding.rank not in row_of:
        return None
    row = row_of[finding.rank]
    others = {
        part: float(np.median([value for at, value in enumerate(each) if at != row] or [0.0]))
        for part, each in values.items()
    }
    named = _OF_CAUSE.get(finding.cause or "")
    part = (
        named
        if named in values
        else max((p for p in _OWN if p in values), key=lambda p: values[p][row] - others[p])
    )
    less = "hardly" if others[part] < _HARDLY * values[part][row] else milliseconds(others[part])
    does = (
        "waits for a disk for" if finding.cause == "disk" and part == "blocked" else parts.name(part, found)
    )
    text = f"rank {finding.rank} {does} {milliseconds(values[part][row])}, the others {less}"
    return _Culprit(row, part, text)


def _of_all(
    finding: Finding, found: Anatomy, row_of: dict[int, int], values: dict[str, list[float]]
) -> _Culprit | None:
    """A part that holds up all ranks, or one that is named."""
    part = kind_of(finding).marks
    if not any(values.get(part, ())):
        return None
    if finding.rank in row_of:
        row = row_of[finding.rank]
        return _Culprit(
            row, part, f"rank {finding.rank} {parts.name(part, found)}: {milliseconds(values[part][row])}"
        )
    text = f"every rank {parts.name(part, found)}: {milliseconds(float(np.mean(values[part])))}"
    return _Culprit(len(values[part]) - 1, part, text, everywhere=True)


def _known(value: float) -> float:
    return float(value) if np.isfinite(value) else 0.0
