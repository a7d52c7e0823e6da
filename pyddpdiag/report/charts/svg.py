"""A chart as an SVG element of a few kB: it needs no package, and shows at most what its pixels can.

Colours of text and lines are the page's, by its style sheet's variables; elsewhere they have values of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyddpdiag.output import as_html, clean
from pyddpdiag.report.charts.chart import (
    Area,
    Axis,
    Chart,
    Heat,
    Line,
    Panel,
    Points,
    Scale,
    Series,
    Spans,
    Whiskers,
    colour,
    extent,
    ink_on,
    scale,
    written,
)

WIDTH: Final = 860
_RIGHT: Final = 26
_GAP: Final = 30
_BELOW: Final = 40
LETTER: Final = 6.4
"""Pixels of a letter of 12 pixels."""

_LONGEST: Final = 34
_STEPS: Final = 60
"""Of an area: wider steps are means of narrower ones."""

_COLUMN: Final = 2.0
"""Pixels in which a line shows no more than its lowest and highest value."""

_NAMED: Final = 100
"""Bars of a chart that say what they are when they are pointed at; of more, none does."""

_MARKS: Final = 200
_CELLS: Final = 1200
_CELLS_WITH_TEXT: Final = 144
_STROKES: Final = {"solid": "", "dash": ' stroke-dasharray="7 4"', "dot": ' stroke-dasharray="2 3"'}
_STYLE: Final = (
    "<style>.pd text{font:12px system-ui,sans-serif;fill:var(--ink,#222)}.pd .d{fill:var(--dim,#666)}"
    ".pd .g{stroke:var(--line,#ddd);fill:none}.pd .m{stroke:var(--ink,#222);stroke-width:2.5}"
    ".pd .b{font-weight:700}</style>"
)


@dataclass(frozen=True)
class _Frame:
    """Where a panel lies, and its scales."""

    left: float
    top: float
    height: float
    x: Scale
    y: Scale

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return WIDTH - _RIGHT


def svg(chart: Chart) -> str:
    """The chart's element."""
    labels = [label for panel in chart.panels for label in panel.y.labels]
    longest = min(_LONGEST, max(map(len, labels), default=7))
    left = 20 + LETTER * max(longest, 7)
    low, high = extent([each for panel in chart.panels for s in panel.series for each in _xs(s)], chart.x)
    x = scale(chart.x, low, high, left, WIDTH - _RIGHT)
    named = sum(len(s.bars) for p in chart.panels for s in p.series if isinstance(s, Spans)) <= _NAMED
    top, drawn = 6.0, []
    for place, panel in enumerate(chart.panels):
        if panel.title or any(isinstance(each, Heat) for each in panel.series):
            top += 14
            drawn.append(_text(left, top - 4, panel.title, "d"))
        heaps = _heaps([series for series in panel.series if isinstance(series, Area)])
        values = [
            *(float(each.lane) for each in panel.callouts),
            *(each for s in panel.series for each in _ys(s)),
            *(each for _, heap in heaps for each in heap),
        ]
        low_y, high_y = extent(values, panel.y)
        if not panel.y.labels and not panel.y.logarithmic:
            high_y += 0.05 * (high_y - low_y)
        down = bool(panel.y.labels) or any(isinstance(each, Heat) for each in panel.series)
        ends = (top, top + panel.height) if down else (top + panel.height, top)
        frame = _Frame(left, top, panel.height, x, scale(panel.y, low_y, high_y, *ends))
        drawn.append(_axes(frame, chart.x, panel, (low, high), (low_y, high_y)))
        drawn += [_areas(heaps, frame)]
        drawn += [_series(series, frame, named) for series in panel.series]
        drawn += [
            _text(
                x(each.x) + (6 if each.side == "end" else -6),
                frame.y(each.lane) + 4,
                f"{each.text} ▲" if each.side == "end" else f"▲ {each.text}",
                "b",
                each.side,
            )
            for each in panel.callouts
        ]
        top = frame.bottom + (_GAP if place < len(chart.panels) - 1 else 0)
    drawn.append(_below(chart.x, x, (low, high), left, top))
    height = round(top + _BELOW)
    return (
        f'<svg class="pd" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" aria-hidden="true" '
        f'xmlns="http://www.w3.org/2000/svg">{_STYLE}{"".join(drawn)}</svg>'
    )


def thinned(x: Sequence[float], y: Sequence[float | None], scale: Scale) -> list[list[tuple[float, float]]]:
    """Points in stretches without a gap; of each column of pixels no more than its lowest and highest."""
    stretches: list[list[tuple[float, float]]] = [[]]
    for at, value in zip(x, y, strict=True):
        if value is None or not math.isfinite(value):
            stretches.append([])
        else:
            stretches[-1].append((at, value))
    return [_few(stretch, scale) for stretch in stretches if stretch]


def _few(points: list[tuple[float, float]], scale: Scale) -> list[tuple[float, float]]:
    if len(points) <= WIDTH / _COLUMN:
        return points
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(int(scale(point[0]) / _COLUMN), []).append(point)
    chosen: list[tuple[float, float]] = []
    for column in columns.values():
        ends = {min(column, key=lambda each: each[1]), max(column, key=lambda each: each[1])}
        chosen += sorted(ends)
    return chosen


def _xs(series: Series) -> list[float | None]:
    if isinstance(series, Heat):
        return [0.0, max(map(len, series.values), default=1) - 1.0]
    if isinstance(series, Spans):
        return [each for bar in series.bars for each in (bar.start, bar.end)]
    if isinstance(series, Whiskers):
        return [each for one in series.intervals for each in (one.low, one.high, one.value)]
    return list(series.x)


def _ys(series: Series) -> list[float | None]:
    if isinstance(series, Heat):
        return [0.0, len(series.values) - 1.0]
    if isinstance(series, Spans):
        return [float(bar.lane) for bar in series.bars]
    if isinstance(series, Whiskers):
        return [float(one.row) for one in series.intervals]
    return [0.0] if isinstance(series, Area) else list(series.y)


def _axes(
    frame: _Frame, x: Axis, panel: Panel, across: tuple[float, float], along: tuple[float, float]
) -> str:
    found = [
        _text(14, frame.top + frame.height / 2, panel.y.title, "d", "middle", turned=True)
        if panel.y.title
        else ""
    ]
    for at, label in written(panel.y, along, 5):
        place = frame.y(at)
        found.append(_text(frame.left - 6, place + 4, label, "", "end"))
        if not panel.y.labels:
            found.append(f'<path class="g" d="M{frame.left:.0f} {place:.1f}H{frame.right:.0f}"/>')
    if not x.labels:
        found += [
            f'<path class="g" d="M{frame.x(at):.1f} {frame.top:.0f}V{frame.bottom:.0f}"/>'
            for at, _ in written(x, across, 8)
        ]
    dotted = 'class="g" style="stroke:var(--dim,#666)" stroke-dasharray="2 3"'
    if x.line_at is not None:
        found.append(f'<path {dotted} d="M{frame.x(x.line_at):.1f} {frame.top:.0f}V{frame.bottom:.0f}"/>')
    if panel.y.line_at is not None:
        found.append(
            f'<path {dotted} d="M{frame.left:.0f} {frame.y(panel.y.line_at):.1f}H{frame.right:.0f}"/>'
        )
    return "".join(found)


def _below(axis: Axis, x: Scale, across: tuple[float, float], left: float, top: float) -> str:
    marks = written(axis, across, 8)
    # Labels that would lie on one another are left out.
    room = (WIDTH - _RIGHT - left) / max(1, len(marks))
    every = max(1, math.ceil(LETTER * max((len(label) for _, label in marks), default=1) / max(room, 1)))
    shown = [_text(x(at), top + 15, label, "", "middle") for at, label in marks[::every]]
    return "".join(shown) + _text((left + WIDTH - _RIGHT) / 2, top + 33, axis.title, "d", "middle")


def _text(
    x: float,
    y: float,
    text: str,
    kind: str = "",
    anchor: str = "start",
    *,
    turned: bool = False,
    fill: str = "",
) -> str:
    said = as_html(clean(text, 90 if kind == "b" else _LONGEST + 6))
    more = f' class="{kind}"' if kind else ""
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += f' transform="rotate(-90 {x:.0f} {y:.0f})"' if turned else ""
    more += f' style="fill:{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{said}</text>'


def _heaps(areas: Sequence[Area]) -> list[tuple[Area, list[float]]]:
    """Each area with where its top lies, on those before it, in at most so many steps."""
    found: list[tuple[Area, list[float]]] = []
    for area in areas:
        wide = max(1, math.ceil(len(area.y) / _STEPS))
        parts = [[value or 0.0 for value in area.y[at : at + wide]] for at in range(0, len(area.y), wide)]
        below = found[-1][1] if found else [0.0] * len(parts)
        found.append((area, [low + sum(part) / len(part) for low, part in zip(below, parts, strict=True)]))
    return found


def _areas(heaps: Sequence[tuple[Area, list[float]]], frame: _Frame) -> str:
    """The whole heap first, then what is left without its top."""
    found = []
    for area, heap in reversed(heaps):
        x = [value or 0.0 for value in area.x]
        starts = x[:: max(1, math.ceil(len(x) / _STEPS))]
        path = f"M{frame.x(starts[0]):.1f} {frame.y(0):.0f}"
        for at, value in zip(starts, heap, strict=True):
            path += f"H{frame.x(at):.1f}V{frame.y(value):.1f}"
        path += f"H{frame.x(x[-1]):.1f}V{frame.y(0):.0f}z"
        found.append(f'<path fill="{colour(area.colour)}" d="{path}"/>')
    return "".join(found)


def _series(series: Series, frame: _Frame, named: bool) -> str:
    if isinstance(series, Line):
        return _line(series, frame)
    if isinstance(series, Points):
        known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if x is not None and y is not None]
        return "".join(
            _mark(frame.x(x), frame.y(y), series.mark, colour(series.colour)) for x, y in known[:_MARKS]
        )
    if isinstance(series, Spans):
        return _spans(series, frame, named)
    if isinstance(series, Whiskers):
        return _whiskers(series, frame)
    return _heat(series, frame) if isinstance(series, Heat) else ""


def _line(series: Line, frame: _Frame) -> str:
    shade = colour(series.colour)
    x = [value or 0.0 for value in series.x]
    stretches = thinned(x, series.y, frame.x)
    drawn = [" ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in stretch) for stretch in stretches]
    lines = "".join(
        f'<polyline fill="none" stroke="{shade}" stroke-width="2"{_STROKES[series.stroke]} points="{each}"/>'
        for each in drawn
    )
    points = [point for stretch in stretches for point in stretch]
    marks = points if series.marks or len(points) < len(stretches) + 1 else []
    return lines + "".join(_mark(frame.x(a), frame.y(b), "circle", shade, 2.5) for a, b in marks[:_MARKS])


def _mark(x: float, y: float, mark: str, shade: str, size: float = 4.5) -> str:
    if mark == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{shade}"/>'
    if mark == "diamond":
        return f'<path fill="{shade}" d="M{x:.1f} {y - size:.1f}l{size} {size}l-{size} {size}l-{size} -{size}z"/>'
    return (
        f'<path stroke="{shade}" stroke-width="2.5" d="M{x - size:.1f} {y - size:.1f}l{2 * size} {2 * size}'
        f'm0 -{2 * size}l-{2 * size} {2 * size}"/>'
    )


def _spans(series: Spans, frame: _Frame, named: bool) -> str:
    shade = colour(series.colour)
    lane = abs(frame.y(1) - frame.y(0)) * 0.86
    bars = [(bar, frame.x(bar.start), max(frame.x(bar.end) - frame.x(bar.start), 0.2)) for bar in series.bars]
    kind = ' class="m"' if series.marked else ""
    if not named:
        path = "".join(
            f"M{x:.1f} {frame.y(row) - lane / 2:.1f}h{width:.1f}v{lane:.1f}h-{width:.1f}z"
            for row, x, width in _merged([(bar.lane, x, width) for bar, x, width in bars])
        )
        return f'<path fill="{shade}"{kind} d="{path}"/>'
    found = []
    for bar, x, width in bars:
        title = f"<title>{as_html(clean(bar.hover))}</title>" if bar.hover else ""
        found.append(
            f'<rect fill="{shade}"{kind} x="{x:.1f}" y="{frame.y(bar.lane) - lane / 2:.1f}" width="{width:.1f}" '
            f'height="{lane:.1f}">{title}</rect>'
        )
        if bar.text and width > LETTER * len(bar.text) + 4:
            found.append(
                _text(x + width / 2, frame.y(bar.lane) + 4, bar.text, "", "middle", fill=ink_on(shade))
            )
    return "".join(found)


def _merged(bars: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Bars of a lane that lie within a pixel of one another as one."""
    found: list[tuple[int, float, float]] = []
    for row, x, width in sorted(bars):
        if found and found[-1][0] == row and x - (found[-1][1] + found[-1][2]) < 0.5 and width < 1.0:
            found[-1] = row, found[-1][1], max(found[-1][2], x + width - found[-1][1])
        else:
            found.append((row, x, width))
    return found


def _whiskers(series: Whiskers, frame: _Frame) -> str:
    shade = colour(series.colour)
    return "".join(
        f'<path stroke="{shade}" stroke-width="2" d="M{frame.x(low):.1f} {frame.y(row):.1f}H{frame.x(high):.1f}"/>'
        + _mark(frame.x(value), frame.y(row), series.mark, shade)
        for row, value, low, high, _ in series.intervals
    )


def _heat(series: Heat, frame: _Frame) -> str:
    rows, columns = len(series.values), max(map(len, series.values), default=0)
    side = max(1, math.ceil(math.sqrt(rows * columns / _CELLS)))
    tall, wide = min(side, rows), min(side * side if rows < side else side, columns)
    known = [value for row in series.values for value in row if value is not None]
    most, least = max(known, default=1.0), min(known, default=0.0)
    levels: dict[int, str] = {}
    for top in range(0, rows, tall):
        for left in range(0, columns, wide):
            # Of cells that share a place the highest one, which is what a map is looked at for.
            cells = [
                v for row in series.values[top : top + tall] for v in row[left : left + wide] if v is not None
            ]
            if not cells:
                continue
            level = round(10 * (max(cells) - least) / (most - least)) if most > least else 5
            x, y = frame.x(left - 0.48), frame.y(top - 0.48)
            width = frame.x(min(left + wide, columns) - 0.52) - x
            height = frame.y(min(top + tall, rows) - 0.52) - y
            levels[level] = levels.get(level, "") + f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
    found = [
        f'<path style="fill:color-mix(in oklab,var(--high,#d55e00) {10 * level}%,var(--low,#fff3e0))" d="{path}"/>'
        for level, path in sorted(levels.items())
    ]
    if rows * columns <= _CELLS_WITH_TEXT:
        found += [
            _text(frame.x(column), frame.y(row) + 4, text, "", "middle")
            for row, texts in enumerate(series.texts)
            for column, text in enumerate(texts)
        ]
    return "".join([*found, _text(frame.right, frame.top - 2, series.unit, "d", "end")])
