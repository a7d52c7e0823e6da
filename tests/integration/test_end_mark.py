"""How a rank's process ended, read from its trace, where the script never closes the recorder."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import ending
from support.forks import context

from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report

WORLD = 2
LIMIT_S = 240


def report_of_scripts(folder: Path, way: str) -> RunReport:
    ranks = [
        subprocess.Popen(
            [sys.executable, str(Path(ending.__file__)), str(rank), str(WORLD), str(folder), way],
            stderr=subprocess.PIPE,
        )
        for rank in range(WORLD)
    ]
    for rank in ranks:
        said = rank.communicate(timeout=LIMIT_S)[1].decode()
        assert rank.returncode == 0 or rank is ranks[1], said
    return load_report(folder / "run")


def test_a_script_that_ends_without_closing_is_no_crash(tmp_path: Path) -> None:
    report = report_of_scripts(tmp_path, "ended")
    assert [(rank.closed, rank.ended) for rank in report.ranks] == [(False, "orderly")] * WORLD
    assert [finding for finding in report.verdict.findings if finding.severity == "error"] == []


@pytest.mark.parametrize(
    ("way", "ended", "said"),
    [
        ("killed", None, "the process is gone"),
        ("raised", "exception", "ended by ValueError: of rank 1, at ending.py:"),
    ],
)
def test_a_rank_that_ends_early_between_steps_is_lost(
    tmp_path: Path, way: str, ended: str | None, said: str
) -> None:
    report = report_of_scripts(tmp_path, way)
    assert [rank.ended for rank in report.ranks] == ["orderly", ended]
    assert report.in_flight_total == 0
    found = report.verdict.findings[0]
    assert (found.kind, found.rank, found.evidence["ended"]) == ("rank_lost", 1, ended)
    assert said in found.message


@pytest.mark.parametrize("way", ["raised", "raised inside"])
def test_an_exception_in_a_process_of_multiprocessing_is_noted(way: str, tmp_path: Path) -> None:
    """It catches the exception itself, and then ends the process normally; the second closes the recorder, too."""
    ranks = [
        context().Process(target=ending.run, args=(rank, WORLD, str(tmp_path), way)) for rank in range(WORLD)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(LIMIT_S)
    assert [rank.exitcode for rank in ranks] == [0, 1]
    report = load_report(tmp_path / "run")
    assert [rank.ended for rank in report.ranks] == ["orderly", "exception"]
    first = report.verdict.findings[0]
    assert (first.kind, first.rank, first.evidence["error"]) == ("rank_lost", 1, "ValueError")
