"""A chart as a picture for a slide: its SVG, drawn by matplotlib, which needs neither a browser nor a screen."""

from __future__ import annotations

import importlib.util
import io
import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from pyddpdiag.errors import UsageError
from pyddpdiag.output import clean
from pyddpdiag.report.charts.chart import Chart, Heat, colour
from pyddpdiag.report.charts.svg import LETTER, WIDTH, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

DPI: Final = 160
_INCH: Final = WIDTH / 10
"""Pixels of the element: a picture is 1600 wide."""

_POINT: Final = 72 / _INCH
"""Of a pixel of the element."""

_TITLE: Final = 34
_ROW: Final = 16
"""Pixels of the title, and of each line of what is said below it."""

_KEY: Final = 20
_LINE: Final = 130
"""Characters of such a line."""

_LONGEST_TITLE: Final = 80
_LONGEST_SENTENCES: Final = 600
_ANCHORS: Final = {"start": "left", "middle": "center", "end": "right"}


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
    """The chart as the bytes of a PNG file, with its title, what it shows, and its legend.

    Raises:
        UsageError: matplotlib is not installed.
    """
    require()
    # Without pyplot, which would look for a screen and keep every figure alive.
    from matplotlib.figure import Figure

    drawing = ElementTree.fromstring(svg(chart))
    high = float(drawing.get("height", 0))
    says = textwrap.wrap(clean(chart.says, _LONGEST_SENTENCES), _LINE)
    keys = list(_keys(chart))
    top, bottom = -_TITLE - _ROW * len(says), high + _KEY * (1 + max((row for row, *_ in keys), default=-1))
    figure = Figure(figsize=(WIDTH / _INCH, (bottom - top) / _INCH))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(bottom, top))
    axes.set_axis_off()
    _write(axes, 10, top + 22, clean(chart.title, _LONGEST_TITLE), size=15, weight="bold")
    for place, line in enumerate(says):
        _write(axes, 10, top + _TITLE + _ROW * place + 4, line, color="#666")
    for element in drawing:
        _draw(axes, element.tag.rpartition("}")[2], element)
    for row, x, name, shade in keys:
        axes.plot(x, high + _KEY * row + 6, "s", color=shade)
        _write(axes, x + 8, high + _KEY * row + 10, name)
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=DPI)
    return target.getvalue()


def _keys(chart: Chart) -> Iterator[tuple[int, float, str, str]]:
    """Row and place of each name in the legend, and its colour."""
    every = [each for panel in chart.panels for each in panel.series if not isinstance(each, Heat)]
    row, x = 0, 20.0
    for name, shade in {clean(each.name): colour(each.colour) for each in every if chart.legend}.items():
        wide = LETTER * len(name) + 40
        if x + wide > WIDTH:
            row, x = row + 1, 20.0
        yield row, x, name, shade
        x += wide


def _write(axes: Axes, x: float, y: float, text: str, size: float = 12, **look: Any) -> None:
    axes.text(x, y, text, fontsize=size * _POINT, parse_math=False, **look)


def _draw(axes: Axes, kind: str, element: ElementTree.Element) -> None:
    """One of the elements of which `svg` makes a chart, with what its style sheet says of it."""
    from matplotlib.patches import Circle, PathPatch

    number = {name: float(element.get(name, 0)) for name in ("x", "y", "cx", "cy", "r", "width", "height")}
    said, style = element.get("class", ""), element.get("style", "")
    if kind == "text":
        look: dict[str, Any] = {"color": _shade(style) or ("#666" if said == "d" else "#222")}
        look |= {
            "ha": _ANCHORS[element.get("text-anchor", "start")],
            "weight": "bold" if said == "b" else "normal",
        }
        if element.get("transform"):
            look |= {"rotation": 90, "rotation_mode": "anchor"}
        _write(axes, number["x"], number["y"], element.text or "", **look)
        return
    if kind == "circle":
        axes.add_patch(Circle((number["cx"], number["cy"]), number["r"], color=element.get("fill")))
    if kind not in ("path", "polyline", "rect"):
        return
    commands = element.get("d", "M" + element.get("points", ""))
    if kind == "rect":
        commands = f"M{number['x']} {number['y']}h{number['width']}v{number['height']}h-{number['width']}z"
    stroke = {"g": _shade(style) or "#ddd", "m": "#222"}.get(said, element.get("stroke", "none"))
    fill = "none" if stroke != "none" and said != "m" else element.get("fill") or _shade(style)
    wide = 2.5 if said == "m" else float(element.get("stroke-width", 1))
    dashes = [float(each) * _POINT for each in element.get("stroke-dasharray", "").split()]
    axes.add_patch(
        PathPatch(
            _path(commands),
            facecolor=fill,
            edgecolor=stroke,
            linewidth=wide * _POINT if stroke != "none" else 0,
            linestyle=(0, dashes) if dashes else "-",
        )
    )


def _shade(style: str) -> str:
    """The colour in a style, or the one between two of a heat map; empty: it has none."""
    found = re.findall(r"#(\w+)", style)
    if len(found) < 2:
        return f"#{found[0]}" if found else ""
    share = int(re.findall(r"(\d+)%", style)[0]) / 100
    high, low = ([int(each[at : at + 2], 16) for at in (0, 2, 4)] for each in found)
    return "#" + "".join(f"{round(b + share * (a - b)):02x}" for a, b in zip(high, low, strict=True))


def _path(commands: str) -> Path:
    """The path of these commands, of those that `svg` uses: M, m, L, l, H, h, V, v and z."""
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    x = y = 0.0
    command = ""
    tokens = iter(re.findall(r"[a-zA-Z]|-?[\d.]+", commands))
    for token in tokens:
        if token.isalpha():
            command = token
            if token == "z":
                points.append((x, y))
                codes.append(Path.CLOSEPOLY)
            continue
        value, relative = float(token), command.islower()
        if command in "Hh":
            x = value + x * relative
        elif command in "Vv":
            y = value + y * relative
        else:
            x, y = value + x * relative, float(next(tokens)) + y * relative
        points.append((x, y))
        codes.append(Path.MOVETO if command in "Mm" else Path.LINETO)
        command = {"M": "L", "m": "l"}.get(command, command)
    return Path(points, codes)
