"""A chart as Plotly draws it on a page: plain dictionaries of its JSON, so that making a page does not import Plotly.

Colours of text, grid and heat maps are the page's business (`page.js`): they depend on light or dark.
"""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyddpdiag.errors import UsageError
from pyddpdiag.output import clean
from pyddpdiag.report.charts.chart import (
    Area,
    Axis,
    Callout,
    Chart,
    Heat,
    Panel,
    Points,
    Series,
    Spans,
    Whiskers,
    colour,
    ink_on,
    rounded,
    written,
)

GAP: Final = 44
"""Pixels between two panels, for the title of the lower one."""

ABOVE: Final = 30
_NOTHING_ABOVE: Final = 8
BELOW: Final = 56
_CELLS_WITH_TEXT: Final = 400
_SYMBOLS: Final = {"circle": "circle", "cross": "x", "diamond": "diamond"}


def _program() -> Path | None:
    found = importlib.util.find_spec("plotly")
    path = Path(found.origin).with_name("package_data") / "plotly.min.js" if found and found.origin else None
    return path if path is not None and path.is_file() else None


def require() -> Path:
    """Plotly's program.

    Raises:
        UsageError: plotly is not installed.
    """
    path = _program()
    if path is None:
        raise UsageError(
            "charts on a page are drawn by plotly, which is not installed.", hint="pip install plotly"
        )
    return path


def script() -> str:
    """Plotly's program, to be embedded into a page.

    Raises:
        UsageError: plotly is not installed.
    """
    return require().read_text(encoding="utf-8")


def figure(chart: Chart) -> dict[str, Any]:
    """The chart as `data` and `layout`."""
    heights = [panel.height for panel in chart.panels]
    drawn = sum(heights) + GAP * (len(heights) - 1)
    every = [series for panel in chart.panels for series in panel.series]
    legend = chart.legend and not all(isinstance(series, Spans) for series in every)
    above = ABOVE if legend or any(panel.title for panel in chart.panels) else _NOTHING_ABOVE
    layout: dict[str, Any] = {
        "height": drawn + above + BELOW,
        "margin": {"l": 56, "r": 16, "t": above, "b": BELOW},
        # The page says what the colours of bars mean.
        "showlegend": legend,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 6 / drawn, "yanchor": "bottom"},
        "hovermode": "closest",
        "barmode": "overlay",
        # A text that does not fit into its bar is left out; it is there when it is pointed at, and in the table.
        "uniformtext": {"mode": "hide", "minsize": 11},
        "dragmode": "zoom",
        "annotations": [],
        "shapes": [],
    }
    data: list[dict[str, Any]] = []
    named: set[str] = set()
    top = drawn
    for place, panel in enumerate(chart.panels):
        number = "" if place == 0 else str(place + 1)
        domain = [(top - panel.height) / drawn, top / drawn]
        axis = _axis(panel.y, vertical=True)
        layout[f"yaxis{number}"] = {**axis, "domain": [max(0.0, domain[0]), min(1.0, domain[1])]}
        if panel.title:
            layout["annotations"].append(_title(panel.title, min(1.0, domain[1])))
        layout["annotations"] += [_callout(callout, number) for callout in panel.callouts]
        top -= panel.height + GAP
        for series in panel.series:
            for trace in _traces(series, chart.x, panel):
                trace["yaxis"] = f"y{number}"
                # One entry for a name, whichever panels it is in.
                trace["showlegend"] = trace.get("showlegend", True) and series_name(series) not in named
                if trace["showlegend"]:
                    named.add(series_name(series))
                data.append(trace)
    layout["xaxis"] = {
        **_axis(chart.x, vertical=False),
        "anchor": f"y{len(heights) if len(heights) > 1 else ''}",
    }
    for place, panel in enumerate(chart.panels):
        _guide(layout, chart.x, panel.y, "" if place == 0 else str(place + 1))
    return {"data": data, "layout": layout}


def series_name(series: Series) -> str:
    """The name of a series in the legend; a heat map has none."""
    return "" if isinstance(series, Heat) else series.name


def shown(text: str) -> str:
    """Text from elsewhere: Plotly takes some tags for itself."""
    return html.escape(clean(text), quote=False)


def _texts(texts: Sequence[str]) -> list[str]:
    return [shown(text).replace("; ", "<br>") for text in texts]


def _title(text: str, y: float) -> dict[str, Any]:
    return {
        "text": shown(text),
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": y,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "name": "panel title",
    }


def _callout(callout: Callout, number: str) -> dict[str, Any]:
    ends = callout.side == "end"
    return {
        "text": f"{shown(callout.text)} ▲" if ends else f"▲ {shown(callout.text)}",
        "x": rounded(callout.x, 7),
        "xref": "x",
        "xanchor": "right" if ends else "left",
        "xshift": 6 if ends else -6,
        "y": callout.lane,
        "yref": f"y{number}",
        "yanchor": "middle",
        "showarrow": False,
        "name": "callout",
    }


def _axis(axis: Axis, *, vertical: bool) -> dict[str, Any]:
    axis_layout: dict[str, Any] = {
        "title": {"text": shown(axis.title), "standoff": 8},
        "automargin": True,
        "zeroline": False,
    }
    if axis.logarithmic:
        axis_layout["type"] = "log"
        axis_layout["minor"] = {"showgrid": False}
    if axis.from_zero:
        axis_layout["rangemode"] = "tozero"
    if axis.labels or axis.ticks:
        places, texts = zip(*written(axis), strict=True)
        axis_layout |= {"tickmode": "array", "tickvals": list(places), "ticktext": [*map(shown, texts)]}
    if axis.labels:
        axis_layout["showgrid"] = False
        if vertical:
            axis_layout["autorange"] = "reversed"
    return axis_layout


def _guide(layout: dict[str, Any], x: Axis, y: Axis, number: str) -> None:
    """A line at a value that matters, such as a ratio of 1."""
    line = {"type": "line", "line": {"dash": "dot", "width": 1}, "layer": "below", "name": "guide"}
    for at, along, across, axes in (
        (x.line_at, "x", "y", {"xref": "x", "yref": f"y{number} domain"}),
        (y.line_at, "y", "x", {"xref": "x domain", "yref": f"y{number}"}),
    ):
        if at is not None:
            ends = {f"{along}0": at, f"{along}1": at, f"{across}0": 0, f"{across}1": 1}
            layout["shapes"].append({**line, **ends, **axes})


def _traces(series: Series, x: Axis, panel: Panel) -> list[dict[str, Any]]:
    if isinstance(series, Heat):
        return [_heat(series)]
    trace: dict[str, Any] = {"name": shown(series.name), "legendgroup": shown(series.name)}
    if isinstance(series, Spans):
        return [_spans(series, trace)]
    if isinstance(series, Whiskers):
        return [_whiskers(series, trace)]
    trace |= {"type": "scatter", "x": list(series.x), "y": list(series.y)}
    if isinstance(series, Area):
        # An unknown value would tear the whole stack; the table says that it is not known.
        trace |= {
            "y": [value or 0 for value in series.y],
            "stackgroup": "parts",
            "mode": "lines",
            "line": {"shape": "hv", "width": 0, "color": colour(series.colour)},
            "fillcolor": colour(series.colour),
            "hovertemplate": f"{shown(series.name)}: %{{y:.4g}}<extra>%{{x}}</extra>",
        }
    elif isinstance(series, Points):
        trace |= {
            "mode": "markers",
            "marker": {"color": colour(series.colour), "symbol": _SYMBOLS[series.mark], "size": 9},
        }
        if series.picks:
            trace |= {"customdata": list(series.picks), "meta": {"picks": series.chooser}}
        if series.hover:
            trace |= {"hovertext": _texts(series.hover), "hoverinfo": "text"}
    else:
        trace |= {
            "mode": "lines+markers" if series.marks else "lines",
            "line": {"color": colour(series.colour), "dash": series.stroke, "width": 2},
            "marker": {"size": 6},
        }
    return [trace]


def _spans(series: Spans, trace: dict[str, Any]) -> dict[str, Any]:
    trace |= {
        "type": "bar",
        "orientation": "h",
        "base": [rounded(bar.start, 7) for bar in series.bars],
        "x": [rounded(bar.end - bar.start, 5) for bar in series.bars],
        "y": [bar.lane for bar in series.bars],
        "width": 0.86,
        "marker": {"color": colour(series.colour), "line": {"width": 0}},
    }
    if series.marked:
        trace["meta"] = {"marked": True}
    if any(bar.text for bar in series.bars):
        trace |= {
            "text": [shown(bar.text) for bar in series.bars],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "insidetextfont": {"color": ink_on(colour(series.colour))},
        }
    labels = {text: place for place, text in enumerate(dict.fromkeys(bar.hover for bar in series.bars))}
    if any(labels):
        # The page puts each text in its place: many spans share a few.
        trace |= {
            "hoverinfo": "text",
            "customdata": [labels[bar.hover] for bar in series.bars],
            "meta": {**trace.get("meta", {}), "labels": _texts(list(labels))},
        }
    return trace


def _whiskers(series: Whiskers, trace: dict[str, Any]) -> dict[str, Any]:
    trace |= {
        "type": "scatter",
        "mode": "markers",
        "x": [one.value for one in series.intervals],
        "y": [one.row for one in series.intervals],
        "marker": {"color": colour(series.colour), "symbol": _SYMBOLS[series.mark], "size": 9},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [one.high - one.value for one in series.intervals],
            "arrayminus": [one.value - one.low for one in series.intervals],
            "color": colour(series.colour),
            "thickness": 2,
            "width": 4,
        },
    }
    if any(one.hover for one in series.intervals):
        trace |= {"hovertext": _texts([one.hover for one in series.intervals]), "hoverinfo": "text"}
    return trace


def _heat(series: Heat) -> dict[str, Any]:
    cells = sum(map(len, series.values))
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": [list(row) for row in series.values],
        "x": list(range(max(map(len, series.values), default=0))),
        "y": list(range(len(series.values))),
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        "showlegend": False,
        "meta": {"heat": True},
        "colorbar": {
            "title": {"text": shown(series.unit), "side": "right"},
            "thickness": 12,
            "outlinewidth": 0,
        },
    }
    if cells <= _CELLS_WITH_TEXT:
        trace |= {"text": [[shown(cell) for cell in row] for row in series.texts], "texttemplate": "%{text}"}
    if series.hover:
        trace |= {"hovertext": [_texts(row) for row in series.hover], "hoverinfo": "text"}
    return trace
