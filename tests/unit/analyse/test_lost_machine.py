"""A machine that is lost in mid-run: what the others recorded after that is evidence of the end only."""

from pathlib import Path
from typing import Any

import pytest
from support.lost_machine import GONE, STEPS, lost_machine
from support.trace_writer import IN_FLIGHT, MS, RankWriter

from pyddpdiag.analyse.operations import _LAST as ALWAYS
from pyddpdiag.analyse.operations import trained_until_ns
from pyddpdiag.live.hang import hang
from pyddpdiag.pipeline import exit_code, load_report
from pyddpdiag.trace.run import open_run

ENDS: dict[str, dict[str, Any] | None] = {"killed": None, "asked to end": {"signal": "SIGTERM"}}
ERROR, ABANDONED = 1, 64


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_with_all_traces_no_link_is_slow_for_what_came_after(
    tmp_path: Path, end: dict[str, Any] | None
) -> None:
    run = lost_machine(tmp_path / "scratch", end)
    run.write(tmp_path / "run")
    report = load_report(tmp_path / "run")
    first = report.verdict.findings[0]
    assert (first.kind, first.rank) == ("node_lost", GONE)
    assert "slow_link" not in {found.kind for found in report.verdict.findings}
    busy = {(link.rank, link.peer): link.busy_ms_per_mb for link in report.links}
    assert set(busy) == {(rank, peer) for rank in range(3) for peer in range(3) if rank != peer}
    assert all(value == pytest.approx(2.0, rel=0.01) for value in busy.values()), busy


def test_it_is_known_by_its_clock_where_its_rank_has_not_said_yet_who_started_it(tmp_path: Path) -> None:
    run = lost_machine(tmp_path / "scratch")
    del run.writers[GONE].sidecar["launch"]
    run.write(tmp_path / "run")
    first = load_report(tmp_path / "run").verdict.findings[0]
    assert (first.kind, first.rank) == ("node_lost", GONE)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_without_its_trace_the_verdict_says_who_waited_where(
    tmp_path: Path, end: dict[str, Any] | None
) -> None:
    run = lost_machine(tmp_path / "scratch", end)
    run.write(tmp_path / "run", without=(GONE,))
    report = load_report(tmp_path / "run")
    assert exit_code(report) == 2
    assert "; cannot tell: ranks 0, 1 waited 134 s in bucket " in report.verdict.line
    assert f" of step {STEPS}, the last that they began, perhaps for rank 2, of which no trace is here. " in (
        report.verdict.line
    )
    # Nor is what they sent to it and got from it other programs' traffic.
    assert not any("Other connections" in found.message for found in report.verdict.findings)
    assert "rank_lost" not in {found.kind for found in report.verdict.findings}


def test_a_bucket_that_others_may_be_late_for_is_no_wait_in_vain(tmp_path: Path) -> None:
    run = lost_machine(tmp_path / "scratch", sat_s=1.0)
    run.write(tmp_path / "run", without=(GONE,))
    assert "waited" not in load_report(tmp_path / "run").verdict.line


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("without", [(), (GONE,)], ids=["all traces", "without its trace"])
def test_who_asks_what_hangs_hears_how_the_commands_ended(
    tmp_path: Path, end: dict[str, Any] | None, without: tuple[int, ...]
) -> None:
    run = lost_machine(tmp_path / "scratch", end)
    run.write(tmp_path / "run", without=without)
    found = hang(tmp_path / "run", stacks=False)
    assert found.line.endswith(" On machine0, machine1, pyddpdiag run ended with exit code 143."), found.line
    assert "no sign of life" not in found.line
    assert not any("no sign of life" in one.message for one in found.findings)
    assert [rank.state for rank in found.ranks if rank.rank != GONE] == ["dead", "dead"]
    assert ("waited 134 s" in found.line) is bool(without)


def test_a_command_that_has_noted_no_end_leaves_its_ranks_out_of_sight(tmp_path: Path) -> None:
    run = lost_machine(tmp_path / "scratch")
    run.exit_codes[1] = None
    run.write(tmp_path / "run")
    found = hang(tmp_path / "run", stacks=False)
    assert [rank.state for rank in found.ranks] == ["dead", "unseen", "unseen"]


@pytest.mark.parametrize(
    ("last", "until"),
    [
        (None, ALWAYS),
        ({"ended": 0, "state": IN_FLIGHT}, 30 * MS),
        ({"ended": 0, "flags": ABANDONED}, 30 * MS),
        ({"ended": 90 * MS, "flags": ERROR}, 30 * MS),
        ({"ended": 90 * MS}, ALWAYS),
    ],
    ids=["ends with a step", "in flight", "abandoned", "failed", "went on"],
)
def test_what_comes_after_the_last_operation_that_went_well_is_cut(
    tmp_path: Path, last: dict[str, Any] | None, until: int
) -> None:
    writer = RankWriter(0, 1)
    writer.bucket(0, 10 * MS, 11 * MS, 20 * MS)
    writer.bucket(1, 12 * MS, 13 * MS, 25 * MS, flags=ERROR)  # the script caught it, and went on
    writer.collective("allreduce", 21 * MS, 30 * MS)
    if last is not None:
        writer.bucket(2, 40 * MS, 41 * MS, **last)
    writer.write(tmp_path)
    [trace] = open_run(tmp_path).ranks
    assert trained_until_ns(trace) == until
