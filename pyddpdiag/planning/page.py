"""A plan as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.files import write_whole
from pyddpdiag.plan.settings import Plan
from pyddpdiag.planning.charts import charts
from pyddpdiag.planning.text import scaling_table, sentences, steps_table
from pyddpdiag.report.page import Paragraph, Part, Section
from pyddpdiag.report.page import page as whole_page


def page(found: Plan) -> str:
    """What can be told and what cannot, the charts, and the tables.

    Raises:
        UsageError: plotly is not installed.
    """
    if found.cannot_tell:
        return whole_page("Plan", [Paragraph(f"Cannot tell: {found.cannot_tell}")], found.folder)
    tables = [steps_table(found)] + ([] if found.scaling is None else [scaling_table(found.scaling)])
    said: list[Part | Section] = [Paragraph(sentence) for sentence in sentences(found)]
    parts = [*said, Section("Charts", charts(found)), Section("Tables", tables)]
    return whole_page("Plan", parts, found.folder)


def write_page(found: Plan, path: Path, *, force: bool = False) -> None:
    """Write the page into a file.

    Raises:
        UsageError: plotly is not installed.
        ResultExistsError: the file exists, and `force` is not given.
        ResultWriteError: it cannot be written.
    """
    write_whole(path, page(found), force=force, option="--html")


__all__ = ["page", "write_page"]
