"""A run in a notebook: its report as an object that shows itself, and as data frames."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Any

from pyddpdiag.export import columns
from pyddpdiag.export.frames import as_frame
from pyddpdiag.export.run import ExportedRun, read_run
from pyddpdiag.model.findings import Verdict
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import closed
from pyddpdiag.output import as_html
from pyddpdiag.pipeline import of_copy
from pyddpdiag.remote.copy import at_hand
from pyddpdiag.remote.place import is_url, shown
from pyddpdiag.report.charts.svg import svg
from pyddpdiag.report.run.steps import step_chart

_SEVERITY = {"error": "#d55e00", "warning": "#b07800", "note": "#1f6f8b"}


def load(source: str | PathLike[str], *, attempt: int | None = None) -> LoadedRun:
    """Read the traces in a folder and judge them. Needs neither torch nor the native module.

    Args:
        source: the folder where the recorders wrote, or its URL.
        attempt: of a job whose launcher restarted the ranks, from 0; None: the newest.

    Raises:
        TraceError: there are no traces, or none can be read.
        RemoteError: the place of a URL cannot be reached, or not all of the traces has come.
        UsageError: there is no such attempt.
    """
    if not is_url(str(source)):
        return LoadedRun(read_run(source, timelines=False, attempt=attempt))
    with at_hand(str(source)) as copy:
        run = read_run(copy, timelines=False, attempt=attempt)
    return LoadedRun(replace(run, report=of_copy(run.report, copy, shown(str(source)))))


class LoadedRun:
    """One run. A notebook shows its verdict and where the time of its steps went.

    Attributes:
        report: everything that `pyddpdiag report` shows (docs/metrics.md).

    The other attributes are data frames of pandas, made when they are first asked for: `steps` (one row per step and
    rank), `buckets`, `occurrences` (one row per all-reduce of a bucket), `ranks`, `links`, `findings`. They raise
    `UsageError` where pandas is not installed.
    """

    def __init__(self, run: ExportedRun) -> None:
        self.report: RunReport = run.report
        self._run = run

    @property
    def verdict(self) -> Verdict:
        """The verdict with its findings."""
        return self.report.verdict

    @cached_property
    def steps(self) -> Any:
        """One row per step and rank."""
        return as_frame(columns.steps(self.report))

    @cached_property
    def buckets(self) -> Any:
        """One row per bucket."""
        return as_frame(columns.buckets(self.report))

    @cached_property
    def occurrences(self) -> Any:
        """One row per all-reduce of a bucket."""
        return as_frame(columns.occurrence_columns(self.report, self._run.occurrences))

    @cached_property
    def ranks(self) -> Any:
        """One row per rank."""
        return as_frame(columns.ranks(self.report))

    @cached_property
    def links(self) -> Any:
        """One row per link between two ranks."""
        return as_frame(columns.links(self.report))

    @cached_property
    def findings(self) -> Any:
        """One row per finding."""
        return as_frame(columns.findings(self.report))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.report.folder!r}: {self.verdict.line}>"

    def _repr_html_(self) -> str:
        """Verdict and step chart: a picture, because notebooks run no scripts of pages that they do not trust."""
        findings = "".join(
            f'<p style="margin:.3em 0;border-left:4px solid {_SEVERITY[finding.severity]};padding-left:.7em">'
            f"<b>{as_html(finding.severity)}</b>: {as_html(closed(finding.message))} {as_html(finding.advice)}</p>"
            for finding in self.verdict.findings
        )
        head = f"<p><b>{as_html(self.verdict.line)}</b></p>{findings}"
        return f"<div>{head}{self._picture()}</div>"

    def _picture(self) -> str:
        chart = step_chart(self.report)
        if chart.empty:
            return ""
        says = as_html(f"{chart.title}. {chart.says}")
        # White below it: the picture does not know the notebook's colours.
        style = "background:white;max-width:60em"
        return f'<div role="img" aria-label="{says}" style="{style}">{svg(chart)}</div>'
