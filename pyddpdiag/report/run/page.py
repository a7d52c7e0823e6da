"""The page of a run: its views in order; and how it and its pictures are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import count
from pyddpdiag.report.charts import picture, plotly
from pyddpdiag.report.charts.chart import Chart, Choice
from pyddpdiag.report.page import CHOICES, Paragraph, Section, page
from pyddpdiag.report.run import buckets, lines, norms_and_loss, steps, trial, verdict, waterfall
from pyddpdiag.system.result_files import refuse_existing, write_whole

_NO_DETAILS = "A saved report holds no single steps: make the page from the folder of the traces to see them."


def run_page(report: RunReport, details: RunDetails | None, *, zoom: bool = False) -> str:
    """The whole page. `details`: None for a report that was read from a file. `zoom`: as in `page`.

    Raises:
        UsageError: plotly is not installed.
    """
    return page(f"Run {report.folder}", sections(report, details, zoom=zoom), _about(report), zoom=zoom)


def sections(report: RunReport, details: RunDetails | None, *, zoom: bool = False) -> list[Section]:
    """The views of the page that have something to show; `zoom`: as in `page`."""
    single = waterfall.parts(report, details, most=None if zoom else CHOICES) if details else []
    found = [
        Section("Verdict", verdict.parts(report, details)),
        Section("Trial of cures", trial.parts(report)),
        Section("Steps", steps.parts(report, details)),
        Section("One step", single if details else [Paragraph(_NO_DETAILS, dim=True)]),
        Section("Lines of the script", lines.parts(report)),
        Section("Buckets", buckets.parts(report, details)),
        Section("Links", buckets.link_parts(report)),
        Section("Gradients and loss", norms_and_loss.parts(report, details)),
        Section("The whole run", verdict.account_parts(report)),
        Section("Files and ranks", verdict.rest(report)),
    ]
    return [section for section in found if section.parts]


def charts(report: RunReport, details: RunDetails | None) -> Iterator[Chart]:
    """Every chart of the page, one of each choice: what becomes a picture."""
    for section in sections(report, details):
        for part in section.parts:
            if isinstance(part, Chart) and not part.empty:
                yield part
            elif isinstance(part, Choice) and part.charts:
                yield part.charts[0]


def _about(report: RunReport) -> str:
    numbers = sorted({int(step) for step in report.steps.step[[0, -1]]}) if len(report.steps) else []
    facts = [f"{len(report.ranks)} of {count(report.world_size, 'rank')}"]
    if numbers:
        facts.append("step " + " to ".join(map(str, numbers)))
    facts += sorted({f"torch {rank.torch}" for rank in report.ranks if rank.torch})[:2]
    hosts = sorted({rank.host for rank in report.ranks if rank.host})
    facts.append(f"{count(len(hosts), 'host')}" if len(hosts) != 1 else f"host {hosts[0]}")
    facts.append(f"run {report.run_id[:8]}")
    return ", ".join(facts) + "."


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
