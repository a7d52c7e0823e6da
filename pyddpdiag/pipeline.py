"""From a trace folder to a report: the one place where reading, analysing and showing meet."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TextIO

from pyddpdiag.analyse.checks.low_gpu_use import judge
from pyddpdiag.analyse.details import run_details
from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.starts import report_of_starts
from pyddpdiag.analyse.summary import analyse
from pyddpdiag.analyse.view import RunView
from pyddpdiag.errors import PyddpdiagError, TraceError, UsageError
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.findings import EXIT_CODES, Finding
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.model.report import RunReport
from pyddpdiag.remote.copy import at_hand
from pyddpdiag.remote.place import is_url, shown
from pyddpdiag.report.json import read_report, report_to_json
from pyddpdiag.report.text import print_text
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.budget import USUAL_GB
from pyddpdiag.trace.folder import folder_of
from pyddpdiag.trace.notes import read_loss, read_trial, start_to_show
from pyddpdiag.trace.run import open_run
from pyddpdiag.trace.starts import read_starts


def load_report(
    source: str | PathLike[str],
    *,
    step: int | None = None,
    bucket: str | None = None,
    gpus: Sequence[GpuUse] = (),
    attempt: int | None = None,
    memory_gb: float = USUAL_GB,
) -> RunReport:
    """The report of a folder of traces, or one that `pyddpdiag report --json` saved in a file.

    Needs neither torch nor the native module.

    Args:
        source: the folder where the recorders wrote, its URL, one rank's trace in it, or a JSON file.
        step: narrow the tables to this step; not for a file.
        bucket: narrow the buckets to this id (its beginning) or parameter name (a part of it); not for a file.
        gpus: what was seen of the ranks' GPUs while they trained; not for a file.
        attempt: of a job whose launcher restarted the ranks, from 0; None: the newest; not for a file.
        memory_gb: about how much memory the records may take, in GB (10^9 bytes): of more, only the newest are read,
            and a warning says so; 0: no limit; not for a file.

    Raises:
        TraceError: there are no traces, or none can be read.
        RemoteError: the place of a URL cannot be reached, or not all of the traces has come.
        ReportFileError: the file is not a saved report.
        UsageError: there is no such step, bucket or attempt, or a saved report was to be narrowed.
    """
    if is_url(str(source)):
        with at_hand(str(source)) as copy:
            report = load_report(
                copy, step=step, bucket=bucket, gpus=gpus, attempt=attempt, memory_gb=memory_gb
            )
        return of_copy(report, copy, shown(str(source)))
    path = folder_of(Path(source))
    if not path.is_file():
        intake = Intake()
        # The result of a trial by starts lies above their traces.
        tried = read_trial(path)
        start = start_to_show(path) if tried is not None else None
        folder, others = choose_attempt(start or path, attempt)
        try:
            run = open_run(folder, visit=intake.take, memory_gb=memory_gb)
        except TraceError:
            starts = read_starts(folder)
            if not starts:
                raise
            return report_of_starts(folder, starts)
        report = analyse(RunView(run, intake, gpus=gpus), step=step, bucket=bucket)
        if start is not None:
            others = (
                f"{path}: holds a trial by starts; this is the last one without a cure. {others}".rstrip()
            )
        warnings = (others, *report.warnings) if others else report.warnings
        return replace(report, warnings=warnings, tried=tried or report.tried)
    if step is not None or bucket is not None or gpus or attempt is not None:
        raise UsageError(
            "a saved report cannot be narrowed or judged again.",
            hint="give the folder of the traces, or save the report with --step or --bucket.",
        )
    return read_report(path)


def of_copy(report: RunReport, copy: str | PathLike[str], name: str) -> RunReport:
    """The report of a copy, as that of the folder that was copied and is called `name`."""
    warnings = tuple(line.replace(str(copy), name) for line in report.warnings)
    return replace(report, folder=report.folder.replace(str(copy), name), warnings=warnings)


def load_details(
    source: str | PathLike[str],
    *,
    step: int | None = None,
    attempt: int | None = None,
    report: RunReport | None = None,
    memory_gb: float = USUAL_GB,
) -> tuple[RunReport, RunDetails | None]:
    """The report, and what a page shows beyond it; None for a report that was saved in a file.

    Args:
        source: as in `load_report`.
        step: show this step beside those that are worth a look by themselves.
        attempt: as in `load_report`.
        report: what `load_report` gave for it already; None: it is made here.
        memory_gb: as in `load_report`.

    Raises:
        TraceError: there are no traces, or none can be read.
        ReportFileError: the file is not a saved report.
        UsageError: there is no such step or attempt.
    """
    report = report if report is not None else load_report(source, attempt=attempt, memory_gb=memory_gb)
    path = folder_of(Path(source))
    if path.is_file():
        return report, None
    start = start_to_show(path) if report.tried is not None else None
    folder, _ = choose_attempt(start or path, attempt)
    details = run_details(report, folder, step=step, memory_gb=memory_gb)
    return report, replace(details, loss=read_loss(folder))


def explain_gpus(gpus: Sequence[GpuUse], folder: str | PathLike[str] | None) -> dict[int, Finding]:
    """Why GPUs were used little, by rank; well-used ones are left out.

    Args:
        gpus: what was seen of the ranks' GPUs while they trained.
        folder: of the run's traces; None if there are none. Unreadable traces are not an error here.
    """
    found: Iterable[Finding] = judge(gpus, ())
    if folder is not None and any(use.low for use in gpus):
        with suppress(PyddpdiagError):
            found = load_report(folder, gpus=gpus).verdict.findings
    return {f.rank: f for f in found if f.kind == "low_gpu_use" and f.rank is not None}


def exit_code(report: RunReport) -> int:
    """0 healthy, 1 findings, 2 could not judge."""
    return EXIT_CODES[report.verdict.status]


def print_report(
    folder: str | PathLike[str],
    *,
    json: bool = False,
    detail: bool = False,
    step: int | None = None,
    bucket: str | None = None,
    top: int | None = None,
    every_rank: bool = False,
    attempt: int | None = None,
    memory_gb: float = USUAL_GB,
    file: TextIO | None = None,
    named: str = "",
    report: RunReport | None = None,
) -> int:
    """Print the report of a folder and return its exit code.

    Args:
        folder: where the recorders wrote.
        json: print the JSON contract (docs/metrics.md) instead of text.
        detail: the JSON holds the ranks' times of every step, however many there are.
        step: narrow the tables to this step.
        bucket: narrow the buckets to this id or parameter name.
        top: how many buckets the text shows; 0 = all; None: 10, where it shows tables.
        every_rank: the text shows all tables and in them all ranks. It shows tables as well where they are narrowed.
        attempt: as in `load_report`.
        memory_gb: as in `load_report`.
        file: where to print; standard output by default.
        named: how the report calls the folder, which may be the copy of another one; empty: as it is called.
        report: of the folder, if the caller has it already and nothing is to be narrowed.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: there is no such step, bucket or attempt.
    """
    if report is None or step is not None or bucket is not None:
        report = load_report(folder, step=step, bucket=bucket, attempt=attempt, memory_gb=memory_gb)
    if named:
        report = of_copy(report, folder, named)
    target = file if file is not None else sys.stdout
    if json:
        target.write(report_to_json(report, detail=detail) + "\n")
    else:
        narrowed = step is not None or bucket is not None or top is not None
        print_text(
            report,
            target,
            top=10 if top is None else top,
            tables=every_rank or narrowed,
            every_rank=every_rank,
        )
    return exit_code(report)
