"""Ranks that are late now and then, and pauses of all ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.reported import findings, report_of
from support.trace_writer import IN_FLIGHT, MS, RankWriter

from pyddpdiag.pipeline import load_report

STEPS = 60


def write(
    folder: Path,
    extra_ms: dict[int, dict[int, float]],
    *,
    ranks: int = 2,
    seed: int = 0,
    phase: str = "",
    steps: int = STEPS,
) -> None:
    """Steps of about 40 ms; `extra_ms` adds compute by rank and step, in a phase if one is named.

    The others wait for whoever is last.
    """
    random = np.random.default_rng(seed)
    writers = [RankWriter(rank, ranks) for rank in range(ranks)]
    now = 10**9
    for step in range(steps):
        own = [
            int((35 + random.normal(0, 1) + extra_ms.get(rank, {}).get(step, 0.0)) * MS)
            for rank in range(ranks)
        ]
        arrived = now + max(own)
        for writer, mine in zip(writers, own, strict=True):
            writer.step(step, now, now, arrived + 3 * MS)
            writer.backward(step, now, now + mine, arrived + 3 * MS)
            writer.bucket(step, now + mine, arrived, arrived + 3 * MS)
            extra = extra_ms.get(writer.rank, {}).get(step)
            if phase and extra is not None:
                writer.phase(phase, now, now + int(extra * MS), step=step)
        now = arrived + 3 * MS
    for writer in writers:
        writer.write(folder)


@pytest.mark.parametrize("every", [7, 20])
def test_a_rank_that_is_late_now_and_then(tmp_path: Path, every: int) -> None:
    late = {step: 90.0 for step in range(5, STEPS, every)}
    write(tmp_path, {2: late}, ranks=3)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.since_step, found.confidence) == ("episodic_rank", 2, 5, "low")
    assert found.evidence["times"] == len(late)
    assert found.cost_ms == pytest.approx(90.0 * len(late) / (STEPS - 2), rel=0.1)


@pytest.mark.parametrize(
    "extra_ms",
    [
        {rank: {step: 90.0 for step in range(5 + 7 * rank, STEPS, 14)} for rank in range(2)},
        {1: {10: 90.0, 30: 90.0}},
        {1: dict.fromkeys((5, 25, 45), 25.0)},
        # Neighbouring steps, as other load on the machine makes them: seen in a run of small buckets.
        dict.fromkeys(range(2), dict.fromkeys(range(20, 27), 80.0)),
        {1: dict.fromkeys(range(20, 32), 80.0)},
        dict.fromkeys(range(2), dict.fromkeys((20, 25, 30), 60.0)),
        dict.fromkeys(range(2), dict.fromkeys((4, 6, 20, 45, 58), 150.0)),
        dict.fromkeys(range(2), dict.fromkeys(range(8, STEPS, 15), 40.0)),
    ],
    ids=[
        *("it wanders between ranks", "two late steps", "rare and cheap", "a burst"),
        *("a burst on one rank", "three pauses in a row", "pauses without a rhythm"),
        "pauses that cost little",
    ],
)
def test_what_has_no_rhythm_or_costs_little_is_no_finding(
    tmp_path: Path, extra_ms: dict[int, dict[int, float]]
) -> None:
    write(tmp_path, extra_ms)
    assert findings(tmp_path) == []


def test_a_pause_of_all_ranks_by_a_rhythm(tmp_path: Path) -> None:
    paused = {step: 150.0 for step in range(8, STEPS, 10)}
    write(tmp_path, {0: paused, 1: paused})
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.since_step) == ("pause", None, 8)
    assert found.evidence["every_steps"] == 10
    assert found.cost_ms == pytest.approx(150.0 * len(paused) / (STEPS - 2), rel=0.1)


def test_a_slow_step_between_does_not_hide_the_rhythm_of_longer_pauses(tmp_path: Path) -> None:
    paused = {step: 200.0 for step in range(8, STEPS, 10)}
    slow = {step: 45.0 for step in (13, 31)}
    write(tmp_path, dict.fromkeys(range(2), paused | slow))
    (found,) = findings(tmp_path)
    assert (found.kind, found.evidence["every_steps"], found.evidence["times"]) == ("pause", 10, len(paused))


def test_a_slow_step_does_not_hide_three_long_pauses_that_are_alike_in_all(tmp_path: Path) -> None:
    paused = {step: 400.0 for step in (8, 20, 32)}
    write(tmp_path, dict.fromkeys(range(2), paused | {5: 25.0}), steps=40)
    (found,) = findings(tmp_path)
    assert (found.kind, found.evidence["every_steps"], found.evidence["times"]) == ("pause", 12, 3)


@pytest.mark.parametrize(("begin", "until"), [(26, 50), (35, STEPS)])
def test_pauses_that_begin_in_the_middle_say_when(tmp_path: Path, begin: int, until: int) -> None:
    """9% of the whole run's time, and a fifth of the time in which they happen."""
    paused = {step: 27.0 for step in range(begin, until, 3)}
    write(tmp_path, {0: paused, 1: paused})
    (found,) = findings(tmp_path)
    assert (found.kind, found.since_step, found.evidence["every_steps"]) == ("pause", begin, 3)
    assert found.evidence["until_step"] == (None if until == STEPS else 47)
    assert found.cost_ms == pytest.approx(27.0 * len(paused) / (STEPS - 2), rel=0.1)


def test_three_long_pauses_that_are_alike_in_all_are_a_rhythm(tmp_path: Path) -> None:
    """Too few for their distances alone; but the pauses are equal, too."""
    paused = {step: 400.0 for step in (8, 17, 26)}
    write(tmp_path / "alike", {0: paused, 1: paused}, steps=33)
    (found,) = findings(tmp_path / "alike")
    assert (found.kind, found.evidence["every_steps"], found.evidence["times"]) == ("pause", 9, 3)
    for name, others in {
        "elsewhere": {8: 400.0, 12: 400.0, 26: 400.0},
        "unlike": {8: 400.0, 17: 800.0, 26: 500.0},
    }.items():
        write(tmp_path / name, {0: others, 1: others}, steps=33)
        assert findings(tmp_path / name) == [], name


def test_stalls_of_any_length_have_no_rhythm_however_close_they_are(tmp_path: Path) -> None:
    """As seen on a machine that other jobs kept very busy."""
    paused = dict(
        zip((6, 23, 24, 25, 28, 30, 33, 35, 38, 39), (15, 30, 190, 75, 25, 155, 30, 16, 12, 20), strict=True)
    )
    stalls = {step: 10.0 * long for step, long in paused.items()}
    write(tmp_path, {0: stalls, 1: stalls})
    assert [found.kind for found in findings(tmp_path)] != ["pause"]


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_no_rhythm(tmp_path: Path, seed: int) -> None:
    """Now and then a rank, any of them, is caught by something else on the machine."""
    random = np.random.default_rng(100 + seed)
    caught = {
        rank: {int(step): float(random.exponential(20.0)) for step in random.integers(1, STEPS, 3)}
        for rank in range(4)
    }
    write(tmp_path, caught, ranks=4, seed=seed)
    assert [found.kind for found in findings(tmp_path) if found.kind in ("episodic_rank", "pause")] == []


def test_a_pause_of_all_ranks_has_the_name_of_its_phase(tmp_path: Path) -> None:
    paused = {step: 150.0 for step in (4, 6, 20, 45, 58)}
    write(tmp_path, {0: paused, 1: paused}, phase="evaluation")
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.since_step, found.confidence) == ("pause", None, 4, "high")
    assert found.evidence["phase"] == "evaluation"
    assert found.cost_ms == pytest.approx(150.0 * len(paused) / (STEPS - 2), rel=0.1)


def test_a_rank_that_alone_is_in_a_phase_is_named_with_it_and_not_late(tmp_path: Path) -> None:
    write(tmp_path, {1: {step: 150.0 for step in range(8, STEPS, 10)}}, ranks=3, phase="checkpoint")
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.evidence["phase"]) == ("pause", 1, "checkpoint")


def test_a_rank_that_is_in_a_phase_in_every_step_is_named_with_it(tmp_path: Path) -> None:
    write(tmp_path, {1: {step: 60.0 for step in range(STEPS)}}, phase="log")
    assert [(found.kind, found.rank) for found in findings(tmp_path)] == [("pause", 1)]


def test_phases_that_cost_little_are_listed_only(tmp_path: Path) -> None:
    write(tmp_path, {0: {step: 3.0 for step in range(STEPS)}}, phase="log")
    report = load_report(tmp_path)
    assert report.verdict.findings == ()
    (phase,) = report.phases
    assert (phase.name, phase.rank, phase.count, phase.in_flight) == ("log", 0, STEPS, 0)
    assert phase.median_ms == pytest.approx(3.0)
    assert phase.total_ms == pytest.approx(3.0 * STEPS)


def test_a_phase_that_has_not_ended_is_listed_without_a_duration(tmp_path: Path) -> None:
    writer = RankWriter(0, 1)
    writer.phase("checkpoint", 10**9, 0, state=IN_FLIGHT)
    (phase,) = report_of([writer], tmp_path / "open").phases
    assert (phase.name, phase.count, phase.in_flight, phase.median_ms) == ("checkpoint", 1, 1, None)
