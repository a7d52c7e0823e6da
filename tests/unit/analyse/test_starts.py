"""Runs without a trace: whom the others wait for, and starts that only take their time."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from pyddpdiag.analyse.standstill import judge_starts, report_of_starts
from pyddpdiag.model.start import Start
from pyddpdiag.report.json import report_to_json
from pyddpdiag.report.text import print_text

WAITS = Start(0, 3, "a", 10, "running", "train.py:20", "barrier", 90.0)
WORKS = Start(1, 3, "a", 11, "running", "data.py:5", "", 95.0)
STARTS = (WAITS, WORKS, replace(WAITS, rank=2, pid=12, for_s=80.0))


def over(*starts: Start) -> list[Start]:
    return [replace(start, process="dead") for start in starts]


def test_the_rank_that_works_is_named_and_not_those_that_wait() -> None:
    line, (found,) = judge_starts(STARTS)
    assert (found.kind, found.rank, found.where, found.confidence) == ("rank_stuck", 1, "data.py:5", "high")
    assert line == (
        "Rank 1 has been at data.py:5 for 95 s, before any training: ranks 0, 2 wait for it in barrier (train.py:20)."
    )
    assert "py-spy dump --pid 11" in found.advice


def test_afterwards_the_wait_that_failed_is_enough() -> None:
    short = replace(WAITS, for_s=5.0, error="RuntimeError: Timed out, at train.py:20")
    line, (found,) = judge_starts(over(short, WORKS))
    assert (found.kind, found.rank) == ("rank_stuck", 1) and "py-spy" not in found.advice
    assert line.startswith("Rank 1 was at data.py:5 for 95 s")


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param([replace(WAITS, for_s=29.0), WORKS], id="others import torch for longer"),
        pytest.param([WAITS, replace(WAITS, rank=1)], id="all wait"),
        pytest.param([WORKS, replace(WORKS, rank=0)], id="nobody waits in a call"),
        pytest.param(
            over(replace(WAITS, for_s=5.0, error="KeyboardInterrupt, at train.py:20"), WORKS), id="Ctrl-C"
        ),
    ],
)
def test_starts_that_take_their_time_accuse_nobody_and_say_every_line(starts: list[Start]) -> None:
    line, found = judge_starts(starts)
    assert found == () and line.startswith("Cannot tell")
    assert all(start.where in line and f"{start.rank}" in line for start in starts)


def test_ranks_that_wait_in_calls_that_do_not_belong_together_are_all_named() -> None:
    new_group = replace(WAITS, where="train.py:17", waits_in="new_group")
    wrapped = replace(WAITS, rank=1, where="train.py:18", waits_in="DistributedDataParallel")
    line, (found,) = judge_starts([new_group, wrapped, replace(wrapped, rank=2)])
    assert (found.kind, found.rank, found.confidence) == ("mismatched_all_reduce", None, "high")
    assert line.endswith(
        "rank 0 is at train.py:17 in new_group for 90 s; ranks 1, 2 are at train.py:18 in DistributedDataParallel for "
        "90 s."
    )
    # One that has only just come there is late.
    assert judge_starts([new_group, replace(wrapped, for_s=9.0), replace(wrapped, rank=2)])[1] == ()
    # Of those that are not here nobody knows.
    assert judge_starts([new_group, wrapped])[1] == ()


def test_a_rank_that_failed_or_died_by_itself_comes_first() -> None:
    failed = replace(WORKS, error="KeyError: 'x', at data.py:7", process="dead")
    _, (found,) = judge_starts([WAITS, failed])
    assert (found.kind, found.rank) == ("rank_lost", 1) and "KeyError: 'x', at data.py:7" in found.message
    _, (found,) = judge_starts([WAITS, replace(WORKS, process="dead")])
    assert (found.kind, found.rank) == ("rank_lost", 1) and "is gone" in found.message


def test_the_report_of_them_is_shown_in_every_form() -> None:
    report = report_of_starts(Path("run"), STARTS)
    out = io.StringIO()
    print_text(report, out)
    assert "Rank 1 has been at data.py:5" in out.getvalue() and "Ranks (" not in out.getvalue()
    assert '"kind": "rank_stuck"' in report_to_json(report)
