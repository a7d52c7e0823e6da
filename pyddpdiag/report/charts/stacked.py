"""Rows as bars of parts, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from pyddpdiag.report.charts.chart import Axis, Bar, Callout, Panel, Spans

_ROW: Final = 34
"""Pixels of a row."""


def stacked(
    parts: Mapping[str, tuple[str, str]],
    values: Mapping[str, Sequence[float]],
    labels: Sequence[str],
    shown: Callable[[float], str],
    text: Callable[[float], str] | None = None,
    marks: Collection[tuple[str, int]] = (),
    said: str = "",
) -> Panel:
    """A bar for each part of each row that is above 0.

    Args:
        parts: name and colour of each part, in their order.
        values: of each part, in each row.
        labels: of the rows.
        shown: a value with its unit.
        text: a value as it stands in its bar; None: as `shown`.
        marks: the parts of rows, by their places, that have a frame.
        said: of these, in the lane below the last one.
    """
    last = max((row for _, row in marks), default=len(labels))
    lanes = [row + (row > last) for row in range(len(labels))]
    ends, series = [0.0] * len(labels), []
    callouts: list[Callout] = []
    for part, (name, colour) in parts.items():
        bars: dict[bool, list[Bar]] = {False: [], True: []}
        for row, value in enumerate(values[part]):
            if value > 0:
                begin, ends[row] = ends[row], ends[row] + value
                hover = f"{labels[row]}; {name}: {shown(value)}"
                bar = Bar(begin, ends[row], lanes[row], hover, (text or shown)(value))
                bars[(part, row) in marks].append(bar)
        series += [Spans(name, each, colour, marked) for marked, each in bars.items() if each]
    for bar in [bar for each in series if each.marked for bar in each.bars if bar.lane == last]:
        middle = (bar.start + bar.end) / 2
        callouts = [Callout(middle, last + 1, said, "start" if middle < max(ends) / 2 else "end")]
    height = _ROW * (len(labels) + len(callouts)) + 8
    return Panel(series, Axis("", labels=labels, at=lanes), height=height, callouts=callouts)
