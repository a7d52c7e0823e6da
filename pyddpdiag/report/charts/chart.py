"""A chart as plain data, independent of who draws it.

A chart has panels one above the other, which share the horizontal axis. A panel holds series. Numbers are plain Python
numbers, None where nothing is known; texts may come from elsewhere, and whoever draws them cleans them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from pyddpdiag.report.tables import Table

Number = float | int | None
Mark = Literal["circle", "cross", "diamond"]
Stroke = Literal["solid", "dash", "dot"]

_TICKS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_FINE: Final = (0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class Line:
    """Values along the horizontal axis."""

    name: str
    x: Sequence[Number]
    y: Sequence[Number]
    colour: str
    stroke: Stroke = "solid"
    marks: bool = False


@dataclass(frozen=True)
class Area:
    """A part of a whole along the horizontal axis: it lies on the areas before it. Each value lasts to the next x."""

    name: str
    x: Sequence[Number]
    y: Sequence[Number]
    colour: str


@dataclass(frozen=True)
class Points:
    """Single points. `hover`: one text per point, instead of its numbers. `picks`: what each one stands for; a click
    on it picks that from the page's choice `chooser`.
    """

    name: str
    x: Sequence[Number]
    y: Sequence[Number]
    colour: str
    mark: Mark = "circle"
    hover: Sequence[str] = ()
    picks: Sequence[int] = ()
    chooser: str = ""


class Bar(NamedTuple):
    """From `start` to `end` in the lane `lane`, counted from the top.

    `hover` is shown when it is pointed at; `text` stands in it if it has room for that.
    """

    start: float
    end: float
    lane: int
    hover: str = ""
    text: str = ""


@dataclass(frozen=True)
class Spans:
    """Bars; `marked` ones have a frame."""

    name: str
    bars: Sequence[Bar]
    colour: str
    marked: bool = False


class Interval(NamedTuple):
    """A value with its interval in the row `row`, counted from the top."""

    row: int
    value: float
    low: float
    high: float
    hover: str = ""


@dataclass(frozen=True)
class Whiskers:
    """Values with their intervals."""

    name: str
    intervals: Sequence[Interval]
    colour: str
    mark: Mark = "circle"


@dataclass(frozen=True)
class Heat:
    """A value for each row and column; `texts` are shown in the cells if there are few."""

    values: Sequence[Sequence[Number]]
    unit: str
    texts: Sequence[Sequence[str]]
    hover: Sequence[Sequence[str]] = ()


Series = Line | Area | Points | Spans | Whiskers | Heat


@dataclass(frozen=True)
class Axis:
    """An axis. `labels` name the places 0, 1, ...; without them it shows numbers.

    `at` are the places of the labels, if these are not one after the other. `ticks` are the numbers to show at a
    numeric axis, as `tick_texts` where there are any.
    """

    title: str = ""
    logarithmic: bool = False
    labels: Sequence[str] = ()
    at: Sequence[float] = ()
    ticks: Sequence[float] = ()
    tick_texts: Sequence[str] = ()
    line_at: float | None = None
    from_zero: bool = False


@dataclass(frozen=True)
class Callout:
    """Words in the lane `lane` about what is above it at `x`; they begin there, or end there."""

    x: float
    lane: int
    text: str
    side: Literal["start", "end"] = "start"


@dataclass(frozen=True)
class Panel:
    """Series over one vertical axis. `height` in pixels on a page of usual width."""

    series: Sequence[Series]
    y: Axis
    title: str = ""
    height: int = 220
    callouts: Sequence[Callout] = ()


@dataclass(frozen=True)
class Chart:
    """A chart with its name (of its file, and on the page), and what it shows in one sentence.

    `table` holds its numbers. `legend`: whether to name the series beside the picture.
    """

    name: str
    title: str
    says: str
    panels: Sequence[Panel]
    x: Axis
    table: Table
    legend: bool = True
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(_drawable(series) for panel in self.panels for series in panel.series)


@dataclass(frozen=True)
class Choice:
    """Charts of one kind, of which one is shown at a time. `labels` name them, `keys` are what picks them."""

    name: str
    title: str
    label: str
    labels: Sequence[str]
    keys: Sequence[int]
    charts: Sequence[Chart] = field(default_factory=tuple)


def by_word(look: Mapping[Any, tuple[str, Mark]], rows: Iterable[tuple[str, Interval]]) -> list[Whiskers]:
    """Intervals, each with the word that it is called by: a series for each word, in the order of `look`."""
    found: dict[str, list[Interval]] = {word: [] for word in look}
    for word, each in rows:
        found[word].append(each)
    return [Whiskers(word, each, *look[word]) for word, each in found.items() if each]


def plain(values: Iterable[Any], digits: int = 4) -> list[Number]:
    """Numbers with so many digits, None for what is not finite: short when written, and safe for JSON."""
    return [None if value is None or not math.isfinite(value) else rounded(value, digits) for value in values]


def rounded(value: float, digits: int = 4) -> float | int:
    """`value` with so many significant digits; whole numbers stay whole."""
    number = float(f"{value:.{digits}g}")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def log_ticks(low: float, high: float) -> list[float]:
    """Numbers to show on a logarithmic axis: 1, 2 and 5 times powers of ten; the powers alone where there are many."""
    if not 0 < low <= high:
        return []
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = (1, 2, 5) if high / low < 1e3 else (1,)
    return [
        n * 10.0**power for power in powers for n in steps if low / 2.01 <= n * 10.0**power <= high * 2.01
    ]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios that an axis from `low` to `high` shows; 1 is always among them."""
    low, high = min(low, 1.0) / 1.05, max(high, 1.0) * 1.05
    if high / low < 1.35:
        return [tick / 100 for tick in range(50, 200, 5) if low <= tick / 100 <= high]
    return [tick for tick in (_FINE if high / low < 5 else _TICKS) if low <= tick <= high]


def _drawable(series: Series) -> bool:
    if isinstance(series, Heat):
        return any(value is not None for row in series.values for value in row)
    if isinstance(series, (Spans, Whiskers)):
        return len(series.bars if isinstance(series, Spans) else series.intervals) > 0
    return any(value is not None for value in series.y)


ROLES: Final = {
    "data": "#cc79a7",
    "forward": "#7a9cc6",
    "compute": "#4477aa",
    "late": "#e69f00",
    "queue": "#9b7fd1",
    "wire": "#009e73",
    "phase": "#a0522d",
    "core": "#999933",
    "blocked": "#6b7079",
    "other": "#56b4e9",
    "optimizer": "#b59f6b",
    "rest": "#8a8f98",
    "good": "#009e73",
    "bad": "#d55e00",
    "same": "#8a8f98",
    "unsure": "#e69f00",
    "accent": "#0072b2",
    "ideal": "#8a8f98",
    "imports": "#a3b8a0",
    "set_up": "#c7b8d8",
    "tail": "#5f8a8b",
    "calls": "#8fd0ee",
    "between": "#e39a6d",
}

SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#9b7fd1", "#8a8f98")


def colour(role: str) -> str:
    """The colour of a role, or of the series number `role`, as #rrggbb."""
    return ROLES[role] if role in ROLES else SERIES[int(role) % len(SERIES)]


def ink_on(background: str) -> str:
    """Black or white, whichever is read better on a colour."""
    # Against either of them, every colour has a contrast of 4.5 to 1 at least with one.
    return "#000000" if (brightness(background) + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def brightness(colour_: str) -> float:
    """Relative luminance of #rrggbb, 0 to 1, as the contrast of WCAG is made of."""
    parts = [int(colour_[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


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


Scale = Callable[[float], float]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at most about so many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def extent(values: Iterable[float | None], axis: Axis) -> tuple[float, float]:
    """From where to where an axis goes that shows these values."""
    if axis.labels:
        places = [*axis.at] or [*range(len(axis.labels))]
        known = [*places, *(value for value in values if value is not None)]
        return min(known) - 0.5, max(known) + 0.5
    known = [value for value in (*values, *axis.ticks) if value is not None and math.isfinite(value)]
    if axis.line_at is not None:
        known.append(axis.line_at)
    if axis.logarithmic:
        known = [value for value in known if value > 0]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if axis.from_zero:
        low = min(0.0, low)
    if high <= low:
        low, high = (low / 2, high * 2) if axis.logarithmic else (low - 0.5, high + 0.5)
    return low, high


def scale(axis: Axis, low: float, high: float, begin: float, end: float) -> Scale:
    """From values, `low` to `high`, to pixels, `begin` to `end`."""

    def of(value: float) -> float:
        return math.log10(max(value, low)) if axis.logarithmic else value

    first, width = of(low), (of(high) - of(low)) or 1.0
    return lambda value: begin + (of(value) - first) / width * (end - begin)


def written(axis: Axis, ends: tuple[float, float] = (1.0, 1.0), most: int = 1) -> list[tuple[float, str]]:
    """What stands beside an axis, and where: its labels or ticks, or about so many round numbers between its ends."""
    if axis.labels:
        return list(zip(axis.at or range(len(axis.labels)), axis.labels, strict=True))
    if axis.ticks:
        return list(zip(axis.ticks, axis.tick_texts or [f"{each:g}" for each in axis.ticks], strict=True))
    if axis.logarithmic:
        powers = range(math.ceil(math.log10(ends[0])), math.floor(math.log10(ends[1])) + 1)
        return [(10.0**power, f"{10.0**power:g}") for power in powers]
    return [(each, f"{each:.6g}") for each in ticks(*ends, most)]
