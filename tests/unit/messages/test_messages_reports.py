"""Public reports of how jobs ended: the first line is right."""

from __future__ import annotations

import pytest
from support import public_reports, public_reports_launchers, public_reports_mixed
from support.public_logs import Report

from pyddpdiag.messages.logs import read
from pyddpdiag.messages.shells import Shell

REPORTS = public_reports.REPORTS + public_reports_launchers.REPORTS + public_reports_mixed.REPORTS


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.source)
def test_the_first_line_is_right(report: Report) -> None:
    verdict = read(report.logs, lines_for=Shell.POSIX)
    assert (verdict.explanation.kind, verdict.culprits) == (report.kind, report.culprits), verdict.sentence


def test_they_are_of_different_kinds() -> None:
    assert len(public_reports.REPORTS) == 30
    assert len({report.source for report in REPORTS}) == len(REPORTS)
    assert len({report.situation for report in REPORTS}) == len(REPORTS)
