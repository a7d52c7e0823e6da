"""A run on other machines, seen through a shared folder: heartbeats tell who lives."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.trace_writer import IN_FLIGHT, MS, RankWriter

from pyddpdiag.pipeline import load_report

STEPS = 6
SILENT_MS = 90_000


def remote_run(
    folder: Path, beat_ages_ms: Sequence[int | None], *, stuck: int | None = None
) -> list[RankWriter]:
    """Every rank waits in the bucket of the last step, except `stuck`, which never began it; all are silent since."""
    writers = []
    for rank, age in enumerate(beat_ages_ms):
        # A clock of its own, which shows 1000 s now.
        now = 1_000_000 * MS
        writer = RankWriter(
            rank,
            len(beat_ages_ms),
            closed=0,
            clock_identity=b"machine %d" % rank,
            monotonic_ns=now,
            wall_ns=time.time_ns(),
            heartbeat_ns=0 if age is None else now - age * MS,
        )
        begin = now - (SILENT_MS + STEPS * 100) * MS
        for step in range(STEPS):
            at = begin + step * 100 * MS
            writer.step(step, at, at, at + 60 * MS)
            writer.backward(step, at, at + 50 * MS, at + 53 * MS)
            writer.bucket(step, at + 45 * MS, at + 46 * MS, at + 52 * MS)
        if rank != stuck:
            at = begin + STEPS * 100 * MS
            writer.bucket(STEPS, at, at, 0, state=IN_FLIGHT)
        writer.write(folder)
        writers.append(writer)
    return writers


def test_a_rank_without_a_heartbeat_is_stopped_or_dead(tmp_path: Path) -> None:
    remote_run(tmp_path, [500, 85_000, 400], stuck=1)
    verdict = load_report(tmp_path).verdict
    first = verdict.findings[0]
    assert (first.kind, first.rank, first.confidence) == ("rank_stopped", 1, "high")
    assert "stopped or dead: its last heartbeat is 85 s old" in first.message
    assert {finding.kind for finding in verdict.findings if finding.severity == "error"} == {"rank_stopped"}


def test_a_rank_with_a_heartbeat_that_began_nothing_is_stuck_in_its_own_code(tmp_path: Path) -> None:
    remote_run(tmp_path, [500, 300, 400], stuck=2)
    first = load_report(tmp_path).verdict.findings[0]
    assert (first.kind, first.rank) == ("rank_stuck", 2)


def test_where_all_wait_and_live_the_transport_stands_still(tmp_path: Path) -> None:
    remote_run(tmp_path, [500, 300, 400])
    assert load_report(tmp_path).verdict.findings[0].kind == "transport_stalled"


@pytest.mark.parametrize("ages", [[None, None, None], [3_600_000] * 3, [500, None, 400]])
def test_without_heartbeats_to_compare_nobody_is_stopped(tmp_path: Path, ages: list[int | None]) -> None:
    remote_run(tmp_path, ages, stuck=1)
    kinds = {finding.kind for finding in load_report(tmp_path).verdict.findings}
    assert "rank_stopped" not in kinds


def test_a_rank_that_closed_needs_no_heartbeat(tmp_path: Path) -> None:
    writers = remote_run(tmp_path, [500, 85_000, 400], stuck=1)
    writers[1].header["closed"] = 1
    writers[1].write(tmp_path)
    assert "rank_stopped" not in {finding.kind for finding in load_report(tmp_path).verdict.findings}
