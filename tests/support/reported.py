"""What the reports on runs say."""

from collections.abc import Iterable
from pathlib import Path

from pyddpdiag.model.findings import Finding
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report
from support.trace_writer import RankWriter


def findings(folder: Path, *kinds: str) -> list[Finding]:
    """What is found in a folder: of these kinds, if any are given."""
    return [one for one in load_report(folder).verdict.findings if not kinds or one.kind in kinds]


def report_of(writers: Iterable[RankWriter], folder: Path) -> RunReport:
    """The report on what these ranks leave in a folder."""
    for writer in writers:
        writer.write(folder)
    return load_report(folder)


def number(finding: Finding, name: str) -> float:
    """What a finding's evidence counts or measures."""
    value = finding.evidence[name]
    assert isinstance(value, (int, float))
    return value
