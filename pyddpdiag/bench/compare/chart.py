"""A comparison as a chart; needs matplotlib, an optional extra."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyddpdiag.bench.compare.comparison import Comparison
from pyddpdiag.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_PAIRS = 40


def require_matplotlib() -> Any:
    """matplotlib's Figure class. Raises `UsageError` if it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "charts are drawn by matplotlib, which is not installed.", hint="pip install 'pyddpdiag[charts]'"
        ) from error
    return Figure


def draw(comparison: Comparison) -> Any:
    """The figure: speed-up by ranks, ratios with intervals, and loss over time, where there are any."""
    panels = []
    if any(row.speedup for row in comparison.scaling):
        panels.append(_speedups)
    if comparison.pairs:
        panels.append(_ratios)
    if comparison.curves:
        panels.append(_losses)
    count = max(1, len(panels))
    tall = 0.25 * min(_MOST_PAIRS, len(comparison.pairs))
    # Without pyplot: it would want a display and keep every figure alive.
    figure = require_matplotlib()(figsize=(6.4 * count, max(4.8, 1.6 + tall)), layout="constrained")
    for place, panel in enumerate(panels):
        panel(comparison, figure.add_subplot(1, count, place + 1))
    return figure


def save_png(figure: Any, path: Path) -> None:
    """Writes the chart as PNG."""
    figure.savefig(path, format="png", dpi=120)


def as_svg(figure: Any) -> str:
    """The chart as an SVG element for a page of HTML."""
    target = io.StringIO()
    figure.savefig(target, format="svg", metadata={"Date": None})
    text = target.getvalue()
    return text[text.index("<svg") :]


def _plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _speedups(comparison: Comparison, axes: Axes) -> None:
    worlds: set[int] = set()
    for row in comparison.scaling:
        if row.speedup:
            worlds |= set(row.speedup)
            style = "--" if row.reference else "-"
            label = _plain(row.label if row.reference else f"{row.label}: {row.what}")
            axes.plot(list(row.speedup), list(row.speedup.values()), style, marker="o", label=label)
    ticks = sorted(worlds)
    axes.plot(ticks, ticks, ":", color="grey", label="ideal")
    axes.set(xlabel="ranks", ylabel="speed-up", title="Speed-up by number of ranks", xticks=ticks)
    axes.legend(fontsize="small")


def _ratios(comparison: Comparison, axes: Axes) -> None:
    pairs = comparison.pairs[:_MOST_PAIRS]
    colours = {"faster": "tab:green", "slower": "tab:red"}
    for place, pair in enumerate(pairs):
        colour = colours.get(pair.word, "tab:grey")
        axes.plot([pair.ratio.low, pair.ratio.high], [place, place], color=colour)
        axes.plot([pair.ratio.median], [place], "o", color=colour)
    axes.axvline(1.0, color="grey", linestyle=":")
    axes.set_yticks(
        range(len(pairs)), [_plain(f"{pair.other}: {pair.case}") for pair in pairs], fontsize="x-small"
    )
    axes.invert_yaxis()
    axes.set(xlabel="time / time of the first, 95% interval", title=_plain(f"Against {pairs[0].base}"))


def _losses(comparison: Comparison, axes: Axes) -> None:
    for curve in comparison.curves:
        axes.plot(curve.elapsed_s, curve.loss, marker=".", label=_plain(curve.label))
    axes.set(xlabel="seconds", ylabel="loss", title="Loss over time")
    axes.legend(fontsize="small")
