"""What a rank does alone between its first module and that module's first pass."""

from pathlib import Path

import pytest
from support.reported import report_of
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.findings import Finding

S = 10**9
OPENED_NS = 20 * S


def alone(
    folder: Path,
    lone_s: float,
    *,
    barrier: bool = False,
    seen: tuple[dict[str, object], ...] = ({}, {}),
    waited_s: float = -1.0,
) -> list[Finding]:
    """Rank 0 comes so much later to its first step; the other waits in a `barrier`, or in that step's all-reduce.

    `seen`: what each rank's sidecar has in `start_up`. `waited_s`: for a core since the process began, 15 s before the
    recorder was opened; below 0: nobody knows.
    """
    writers = [RankWriter(rank, 2, monotonic_ns=OPENED_NS) for rank in range(2)]
    now = OPENED_NS + int(lone_s * S)
    if barrier:
        writers[1].collective("gloo:broadcast", OPENED_NS + MS, now, step=0)
    for step in range(24):
        for writer, start_up in zip(writers, seen, strict=True):
            writer.sidecar["start_up"] = start_up
            writer.step(step, now, now + MS, now + 40 * MS)
            times = (now + MS, now + MS, now + 30 * MS, now + 35 * MS, now + MS, now + 2 * MS)
            writer.add(3, times=times, step=step)
            writer.bucket(step, now + 25 * MS, now + 30 * MS, now + 32 * MS, step=step)
            if waited_s >= 0.0:
                writer.sidecar["process_started_s"] = 1_700_000_000 - 15
                writer.usage(step, now + 36 * MS, run_delay=int(waited_s * S))
        now += 40 * MS
    return [one for one in report_of(writers, folder).verdict.findings if one.kind == "rank_alone"]


@pytest.mark.parametrize(("lone_s", "named"), [(0.8, False), (1.2, True)])
def test_to_begin_takes_each_rank_another_time(tmp_path: Path, lone_s: float, named: bool) -> None:
    """As while DDP is constructed."""
    assert bool(alone(tmp_path, lone_s, barrier=True)) == named


def worked(busy_s: float, waited_s: float = 0.0) -> dict[str, object]:
    """As a rank notes what it did between its first module and that module's first pass."""
    return {
        "after_module_seen_ns": int((busy_s + waited_s) * S),
        "after_module_waited_ns": int(waited_s * S),
        "after_module_line": "finder.py:12",
        "after_module_line_ns": int(busy_s * S),
    }


def test_work_between_the_first_module_and_its_pass_is_named_with_its_line(tmp_path: Path) -> None:
    """Its recorder is opened in the first pass only."""
    (found,) = alone(tmp_path, 0.0, seen=(worked(6.0), worked(0.1)))
    assert (found.rank, found.where) == (0, "finder.py:12") and "before the first step" in found.message
    assert found.cost_s == pytest.approx(5.9, rel=0.02)


@pytest.mark.parametrize(
    "seen",
    [
        (worked(6.0), worked(5.5)),
        (worked(0.1, 6.0), worked(0.1)),
        (worked(6.0), {"after_module_seen_ns": 5}),
        (worked(0.8), worked(0.0)),
    ],
    ids=["all-ranks-do", "waits", "other-not-known", "short"],
)
def test_what_no_rank_does_alone_there_is_no_finding(
    tmp_path: Path, seen: tuple[dict[str, object], ...]
) -> None:
    assert not alone(tmp_path, 0.0, seen=seen)


@pytest.mark.parametrize(("waited_s", "named"), [(0.0, True), (5.0, True), (15.0, False)])
def test_who_begins_late_for_want_of_a_core_does_nothing_alone(
    tmp_path: Path, waited_s: float, named: bool
) -> None:
    """Both waited as long for a core, and rank 0 as much of the time in which it alone was busy as of the rest."""
    started: dict[str, object] = {"loaded_ns": OPENED_NS - S}
    assert bool(alone(tmp_path, 4.0, barrier=True, seen=(started, started), waited_s=waited_s)) == named
