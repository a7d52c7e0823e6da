"""Writes the page of a run and its pictures."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.report import RunReport
from pyddpdiag.report.charts import picture, plotly
from pyddpdiag.report.run.page import charts, run_page
from pyddpdiag.system.result_files import refuse_existing, write_whole


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
    report: RunReport,
    details: RunDetails | None,
    html: Path | None,
    png: Path | None,
    *,
    force: bool = False,
    zoom: bool = False,
) -> list[Path]:
    """Write the page of a run into the file `html`, and its charts into the folder `png`, whichever are given.

    `report`, `details`: as `load_details` gives them. `zoom`: as in `page`.

    Returns:
        what was written.

    Raises:
        UsageError: plotly or matplotlib is not installed.
        ResultExistsError: a file exists, and `force` is not given.
        ResultWriteError: a file cannot be written.
    """
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
