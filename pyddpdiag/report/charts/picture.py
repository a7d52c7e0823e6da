"""A chart as a picture for a slide: drawn by matplotlib, which needs neither a browser nor a screen."""

from __future__ import annotations

import importlib.util
import io
import textwrap
from typing import TYPE_CHECKING, Any, Final

from pyddpdiag.errors import UsageError
from pyddpdiag.output import clean
from pyddpdiag.report.charts.chart import (
    Area,
    Axis,
    Chart,
    Heat,
    Line,
    Panel,
    Points,
    Series,
    Spans,
    Whiskers,
)
from pyddpdiag.report.charts.colours import colour, ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI: Final = 160
WIDTH: Final = 10.0
"""Inches: 1600 pixels."""

LONGEST_LABEL: Final = 60
_LONGEST_SENTENCES: Final = 600
_LINE: Final = 140
"""Characters of a line below the title."""

_TITLE: Final = 0.36
_SAYS: Final = 0.18
"""Inches of the title, and of each line below it."""

_KEY: Final = 0.75
_LETTER: Final = 0.085
"""Inches of a colour in the legend, and of a letter of its name."""

_INCH: Final = 100.0
"""Pixels of a page that become an inch of a picture."""

_CELLS_WITH_TEXT: Final = 144
_TEXT_SHARE: Final = 0.012
"""Of the widest bar: what a character in a bar takes."""

_MARKS: Final = {"circle": "o", "cross": "x", "diamond": "D"}
_STROKES: Final = {"solid": "-", "dash": "--", "dot": ":"}


def available() -> bool:
    """Whether matplotlib, an optional extra, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def require() -> None:
    """Looks for matplotlib.

    Raises:
        UsageError: it is not installed.
    """
    if not available():
        raise UsageError(
            "pictures are drawn by matplotlib, which is not installed.",
            hint="pip install matplotlib",
        )


def as_png(chart: Chart) -> bytes:
    """The chart as the bytes of a PNG file.

    Raises:
        UsageError: matplotlib is not installed.
    """
    target = io.BytesIO()
    _draw(chart).savefig(target, format="png", dpi=DPI)
    return target.getvalue()


def plain(text: str) -> str:
    """Text that can be drawn, leaves room for the picture, and does not look like a formula to matplotlib."""
    return clean(text, LONGEST_LABEL).replace("$", r"\$")


def _draw(chart: Chart) -> Figure:
    require()
    # Without pyplot, which would look for a screen and keep every figure alive.
    from matplotlib.figure import Figure

    heights = [panel.height for panel in chart.panels]
    says = textwrap.wrap(clean(chart.says, _LONGEST_SENTENCES).replace("$", r"\$"), _LINE)
    drawn = (sum(heights) + 60 * len(heights) + 60) / _INCH
    above = _TITLE + _SAYS * len(says)
    whole = drawn + above
    figure = Figure(figsize=(WIDTH, whole), layout="constrained")
    # Below what is written above it; constrained layout itself knows of one text only.
    figure.get_layout_engine().set(rect=(0, 0, 1, drawn / whole))  # type: ignore[union-attr,call-arg]
    figure.text(0.01, 1 - 0.08 / whole, plain(chart.title), va="top", fontsize="large", fontweight="bold")
    figure.text(
        0.01,
        1 - _TITLE / whole,
        "\n".join(says),
        va="top",
        fontsize="small",
        color="dimgrey",
        linespacing=1.3,
    )
    grid: Any = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    named: dict[str, Any] = {}
    for place, (panel, axes) in enumerate(zip(chart.panels, grid[:, 0], strict=True)):
        _panel(panel, chart.x, axes)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
        if place < len(heights) - 1:
            axes.tick_params(labelbottom=False)
        else:
            axes.set_xlabel(plain(chart.x.title))
    if chart.legend and named:
        figure.legend(
            list(named.values()),
            list(named),
            loc="outside lower left",
            ncols=max(1, min(len(named), int(WIDTH / (_KEY + _LETTER * max(map(len, named)))))),
            frameon=False,
        )
    return figure


def _panel(panel: Panel, x: Axis, axes: Axes) -> None:
    areas = [series for series in panel.series if isinstance(series, Area)]
    if areas:
        axes.stackplot(
            [value or 0 for value in areas[0].x],
            *([value or 0 for value in area.y] for area in areas),
            labels=[plain(area.name) for area in areas],
            colors=[colour(area.colour) for area in areas],
            step="post",
        )
    for series in panel.series:
        if not isinstance(series, Area):
            _series(series, axes)
    for callout in panel.callouts:
        ends = callout.side == "end"
        text = f"{plain(callout.text)} ▲" if ends else f"▲ {plain(callout.text)}"
        axes.text(
            callout.x, callout.lane, text, ha="right" if ends else "left", va="center", fontweight="bold"
        )
    axes.set_title(plain(panel.title), loc="left", fontsize="medium")
    axes.set_ylabel(plain(panel.y.title))
    _scale(panel.y, axes, "y")
    _scale(x, axes, "x")
    heat = any(isinstance(series, Heat) for series in panel.series)
    if panel.y.labels and not heat:
        axes.invert_yaxis()
    if areas:
        axes.margins(x=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if not heat:
        axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def _scale(axis: Axis, axes: Axes, which: str) -> None:
    target = axes.yaxis if which == "y" else axes.xaxis
    if axis.logarithmic:
        (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    if axis.ticks:
        texts = [plain(text) for text in axis.tick_texts] or [f"{tick:g}" for tick in axis.ticks]
        target.set_ticks(list(axis.ticks), texts)
        target.set_ticks([], minor=True)
    if axis.labels:
        at = list(axis.at) if axis.at else list(range(len(axis.labels)))
        target.set_ticks(at, [plain(label) for label in axis.labels], fontsize="small")
        if which == "x" and len(axis.labels) > 8:
            axes.tick_params(axis="x", rotation=60)
    if axis.from_zero:
        (axes.set_ylim if which == "y" else axes.set_xlim)(0)
    if axis.line_at is not None:
        (axes.axhline if which == "y" else axes.axvline)(
            axis.line_at, color="grey", linestyle=":", linewidth=1
        )


def _series(series: Series, axes: Axes) -> None:
    if isinstance(series, Heat):
        _heat(series, axes)
        return
    style: dict[str, Any] = {"color": colour(series.colour), "label": plain(series.name)}
    if isinstance(series, Line):
        x, y = ([float("nan") if value is None else value for value in each] for each in (series.x, series.y))
        marker = "o" if series.marks else None
        axes.plot(x, y, _STROKES[series.stroke], marker=marker, markersize=3.5, linewidth=1.6, **style)
    elif isinstance(series, Points):
        known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if x is not None and y is not None]
        axes.scatter(
            [x for x, _ in known], [y for _, y in known], marker=_MARKS[series.mark], s=28, zorder=3, **style
        )
    elif isinstance(series, Spans):
        long = [bar.end - bar.start for bar in series.bars]
        frame: dict[str, Any] = {"edgecolor": "black", "linewidth": 1.6, "zorder": 3} if series.marked else {}
        lanes, left = [bar.lane for bar in series.bars], [bar.start for bar in series.bars]
        drawn = axes.barh(lanes, long, left=left, height=0.86, **frame, **style)
        if any(bar.text for bar in series.bars):
            # In the bars that are wide enough for them.
            least = _TEXT_SHARE * max(bar.end for bar in series.bars)
            wide = [bar.end - bar.start >= least * len(bar.text) for bar in series.bars]
            texts = [plain(bar.text) if fits else "" for bar, fits in zip(series.bars, wide, strict=True)]
            ink = ink_on(style["color"])
            axes.bar_label(drawn, texts, label_type="center", color=ink, fontsize="small", zorder=4)
    elif isinstance(series, Whiskers):
        low = [one.value - one.low for one in series.intervals]
        high = [one.high - one.value for one in series.intervals]
        axes.errorbar(
            [one.value for one in series.intervals],
            [one.row for one in series.intervals],
            xerr=[low, high],
            fmt=_MARKS[series.mark],
            capsize=3,
            markersize=5,
            **style,
        )


def _heat(series: Heat, axes: Axes) -> None:
    values = [[float("nan") if value is None else value for value in row] for row in series.values]
    picture = axes.imshow(values, aspect="auto", cmap="YlOrRd", interpolation="nearest")
    figure = axes.get_figure()
    if figure is not None:
        figure.colorbar(picture, ax=axes, label=plain(series.unit))
    if sum(map(len, series.values)) > _CELLS_WITH_TEXT:
        return
    most = max((value for row in series.values for value in row if value is not None), default=0.0)
    for row, cells in enumerate(series.texts):
        for column, cell in enumerate(cells):
            value = series.values[row][column]
            ink = "white" if value is not None and most and value > 0.6 * most else "black"
            axes.text(column, row, plain(cell), ha="center", va="center", color=ink, fontsize="x-small")
