"""The series as one HTML file without anything outside it."""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.report.charts import plotly
from pyddpdiag.report.page import Paragraph, Part, Section
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.scaling.charts import charts
from pyddpdiag.scaling.model import Run
from pyddpdiag.scaling.table import tables


def page(runs: Sequence[Run]) -> str:
    """Title, charts (left out without plotly: trainings that took hours are not lost for it) and the tables."""
    drawn: list[Part | Section] = [Section("Charts", charts(runs))]
    if not plotly.available():
        drawn = [Paragraph("No charts: plotly is not installed (pip install plotly).")]
    return whole_page(
        f"Scaling of the training on {runs[0].result.dataset}", [*drawn, Section("Tables", tables(runs))]
    )
