"""A plan as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.plan.charts import charts
from pyddpdiag.plan.settings import Plan
from pyddpdiag.plan.text import sentences
from pyddpdiag.report.page import Paragraph, Part, Section
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.system.result_files import write_whole


def page(found: Plan) -> str:
    """What can be told and what cannot, and the charts with their numbers as tables."""
    if found.cannot_tell:
        return whole_page("Plan", [Paragraph(f"Cannot tell: {found.cannot_tell}")], found.folder)
    said: list[Part | Section] = [Paragraph(sentence) for sentence in sentences(found)]
    return whole_page("Plan", [*said, *charts(found)], found.folder)


def write_page(found: Plan, path: Path, *, force: bool = False) -> None:
    """Write the page into a file.

    Raises:
        ResultExistsError: the file exists, and `force` is not given.
        ResultWriteError: it cannot be written.
    """
    write_whole(path, page(found), force=force, option="--html")
