"""The series as one HTML file without anything outside it."""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.report.page import Section
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.scaling.charts import charts
from pyddpdiag.scaling.model import Run
from pyddpdiag.scaling.table import tables


def page(runs: Sequence[Run]) -> str:
    """Title, charts and tables."""
    title = f"Scaling of the training on {runs[0].result.dataset}"
    return whole_page(title, [Section("Charts", charts(runs)), Section("Tables", tables(runs))])
