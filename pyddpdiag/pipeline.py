"""Trace folder in, report out: the one place where reading, analysing and showing meet."""

from __future__ import annotations

import sys
from os import PathLike
from pathlib import Path
from typing import Final, TextIO

from pyddpdiag.analyse.summary import analyse
from pyddpdiag.model import RunReport
from pyddpdiag.report.json import report_to_json
from pyddpdiag.report.text import print_text
from pyddpdiag.trace.run import open_run

EXIT_CODES: Final = {"healthy": 0, "findings": 1, "cannot_tell": 2}


def load_report(
    folder: str | PathLike[str], *, step: int | None = None, bucket: str | None = None
) -> RunReport:
    """Read and analyse the traces in a folder.

    Args:
        folder: where the recorders wrote.
        step: narrow the tables to this step.
        bucket: narrow the buckets to this id (its beginning) or parameter name (a part of it).

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: there is no such step or bucket.
    """
    return analyse(open_run(Path(folder)), step=step, bucket=bucket)


def exit_code(report: RunReport) -> int:
    """0 healthy, 1 findings, 2 could not judge."""
    return EXIT_CODES[report.verdict.status]


def print_report(
    folder: str | PathLike[str],
    *,
    json: bool = False,
    step: int | None = None,
    bucket: str | None = None,
    top: int = 10,
    file: TextIO | None = None,
) -> int:
    """Print the report of a folder and return the exit code it calls for.

    Args:
        folder: where the recorders wrote.
        json: print the JSON contract (docs/metrics.md) instead of text.
        step: narrow the tables to this step.
        bucket: narrow the buckets to this id or parameter name.
        top: how many buckets the text shows; 0 = all.
        file: where to print; standard output by default.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: there is no such step or bucket.
    """
    report = load_report(folder, step=step, bucket=bucket)
    target = file if file is not None else sys.stdout
    if json:
        target.write(report_to_json(report) + "\n")
    else:
        print_text(report, target, top=top)
    return exit_code(report)
