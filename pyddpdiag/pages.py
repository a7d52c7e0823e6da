"""Writes the page of a run and its pictures."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from pyddpdiag.files import refuse_existing, write_whole
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_details
from pyddpdiag.report.charts import picture, plotly
from pyddpdiag.report.run.page import charts, run_page
from pyddpdiag.trace.budget import USUAL_GB


def require_free(html: Path | None, png: Path | None, *, force: bool, zoom: bool = False) -> None:
    """Looks before the work begins whether a page and pictures can be made and written.

    Raises:
        UsageError: pictures need matplotlib, or charts that can be zoomed plotly, and it is not installed.
        ResultExistsError: the page exists, and `force` is not given.
    """
    if html is not None:
        refuse_existing([html], force, "--html")
    if zoom:
        plotly.require()
    if png is not None:
        picture.require()


def write_pages(
    source: str | PathLike[str],
    html: Path | None,
    png: Path | None,
    *,
    step: int | None = None,
    attempt: int | None = None,
    memory_gb: float = USUAL_GB,
    force: bool = False,
    zoom: bool = False,
    report: RunReport | None = None,
) -> list[Path]:
    """Write the page of a run into the file `html`, and its charts into the folder `png`, whichever are given.

    `report`: of the folder `source`, if the caller has it already. `memory_gb`: as in `load_report`.
    `zoom`: as in `page`.

    Returns:
        what was written.

    Raises:
        TraceError: there are no traces, or none can be read.
        ReportFileError: the file is not a saved report.
        UsageError: plotly or matplotlib is not installed, or there is no such step or attempt.
        ResultExistsError: a file exists, and `force` is not given.
        ResultWriteError: a file cannot be written.
    """
    require_free(html, png, force=force, zoom=zoom)
    report, details = load_details(source, step=step, attempt=attempt, report=report, memory_gb=memory_gb)
    written: list[Path] = []
    if html is not None:
        write_whole(html, run_page(report, details, zoom=zoom), force=force, option="--html")
        written.append(html)
    if png is not None:
        pictures = {png / f"{chart.name}.png": chart for chart in charts(report, details)}
        refuse_existing(pictures, force, "--png")
        for path, chart in pictures.items():
            write_whole(path, picture.as_png(chart), force=force, option="--png")
            written.append(path)
    return written
