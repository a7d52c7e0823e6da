"""The series as one HTML file without anything outside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pyddpdiag.scaling import charts, table
from pyddpdiag.scaling.model import Run

_STYLE = (
    "body{font:16px sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "pre{overflow-x:auto}svg{max-width:100%}"
)


def page(runs: Sequence[Run]) -> str:
    """Title, picture (left out without matplotlib) and the text."""
    first = runs[0].result
    title = f"Scaling of the training on {first.dataset}"
    drawing = "<p>No chart: matplotlib is not installed.</p>"
    if charts.available():
        svg = charts.picture(runs, "svg").decode()
        drawing = svg[svg.index("<svg") :]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{drawing}\n"
        f"<pre>{escape(table.text(runs))}</pre>\n</body></html>\n"
    )
