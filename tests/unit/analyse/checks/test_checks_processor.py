"""What the processor's readings tell: why a rank is late, who waits for a core, what the collector takes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.processor_use import NOTHING, STEPS, Extra, write
from support.reported import findings

from pyddpdiag.pipeline import load_report


@pytest.mark.parametrize(
    ("extra", "cause"),
    [
        (Extra(cpu=40), "compute"),
        (Extra(cpu=30, delay=20), "compute"),
        (Extra(delay=40), "core"),
        (Extra(delay=40, cpu=15), "core"),
        (Extra(sleep=40), "blocked"),
        (Extra(sleep=30, cpu=5, delay=5), "blocked"),
        (Extra(sleep=40, faults=300), "disk"),
        # Some come with every program; they take no such time.
        (Extra(sleep=40, faults=20), "blocked"),
        (Extra(cpu=40, faults=20), "compute"),
    ],
)
def test_a_late_rank_has_the_cause_of_its_extra_time(tmp_path: Path, extra: Extra, cause: str) -> None:
    write(tmp_path, [NOTHING, extra, NOTHING])
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.cause) == ("late_rank", 1, cause)
    of_all = extra.at(0)
    assert found.evidence["cpu_share"] == pytest.approx(extra.cpu / of_all, abs=0.1)
    assert found.evidence["core_wait_share"] == pytest.approx(extra.delay / of_all, abs=0.1)
    assert found.evidence["major_faults"] == extra.faults
    assert ("300 pages of memory" in found.message) == (cause == "disk")


@pytest.mark.parametrize(
    ("extra", "others_wait", "sure"),
    [
        (Extra(cpu=8), 0.0, True),
        # As late as healthy ranks are where other programs take a machine's caches and cores.
        (Extra(cpu=8), 30.0, False),
        (Extra(cpu=4.5), 0.0, False),
        (Extra(cpu=45), 30.0, True),
        (Extra(delay=30), 30.0, False),
        (Extra(delay=30), 0.0, True),
        # Sleeping has nothing to do with a machine's load.
        (Extra(sleep=12), 30.0, True),
    ],
)
def test_lateness_that_the_machines_load_may_cause_is_of_low_confidence(
    tmp_path: Path, extra: Extra, others_wait: float, sure: bool
) -> None:
    """What the other rank waits for a core tells it; no load average is needed."""
    write(tmp_path, [Extra(delay=others_wait), replace(extra, delay=extra.delay + others_wait)], cores=2)
    assert [one.confidence != "low" for one in findings(tmp_path) if one.kind == "late_rank"] == [sure]


def test_a_rank_that_computes_a_multiple_is_no_victim_of_a_busy_machine(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(cpu=45, delay=150)], load=2.0, cores=1)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.cause, found.confidence) == ("late_rank", 1, "compute", "high")


def test_most_ranks_can_be_late(tmp_path: Path) -> None:
    """One computes more and one sleeps: their lower median is as late as they are."""
    write(tmp_path, [Extra(cpu=40), NOTHING, Extra(sleep=40)])
    found = {each.rank: each for each in findings(tmp_path)}
    assert {rank: each.cause for rank, each in found.items()} == {0: "compute", 2: "blocked"}
    for each in found.values():
        assert (each.kind, each.evidence["than_rank"]) == ("late_rank", 1)
        assert each.evidence["extra_ms"] == pytest.approx(40, rel=0.1)
        assert "more than rank 1" in each.message
    # A rank with a core to itself is as early; nobody need be late.
    write(tmp_path / "shared", [Extra(cpu=15), NOTHING, Extra(sleep=15)])
    sure = {each.rank: (each.cause, each.confidence) for each in findings(tmp_path / "shared")}
    assert sure == {0: ("compute", "low"), 2: ("blocked", "high")}
    # What they wait for cores does not make them late.
    write(tmp_path / "core", [Extra(delay=40), NOTHING, Extra(delay=40)])
    assert "late_rank" not in [each.kind for each in findings(tmp_path / "core")]


def test_where_more_ranks_are_late_than_can_be_named_the_others_are_early(tmp_path: Path) -> None:
    write(tmp_path, [Extra(cpu=40)] * 4 + [NOTHING] * 3)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.confidence) == ("uneven_ranks", None, "medium")
    assert found.message.startswith("ranks 4, 5, 6 need ")
    assert found.cost_ms == pytest.approx(40 * 3 / 7, rel=0.25)
    # A single one of many with less to do costs little.
    write(tmp_path / "one", [NOTHING] + [Extra(cpu=12)] * 11)
    assert findings(tmp_path / "one") == []


def test_fewer_threads_do_not_make_waiting_for_a_core_sure(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(delay=40)], threads=(16, 1), load=4.0, cores=1)
    found = next(found for found in findings(tmp_path) if found.kind == "late_rank")
    assert (found.cause, found.confidence) == ("core", "low")


def test_other_threads_of_a_rank_that_hold_the_interpreters_lock_are_named(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(sleep=40, beside=38)], load=0.1, cores=8)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.cause, found.confidence) == ("late_rank", 1, "compute", "high")
    assert found.evidence["other_threads_ms"] == pytest.approx(68.0, abs=1.0)
    assert "other threads of its process" in found.message and "GIL" in found.advice
    write(tmp_path / "all", [Extra(beside=38), Extra(sleep=40, beside=38)], load=0.1, cores=8)
    (found,) = findings(tmp_path / "all")
    assert found.cause == "blocked"


def test_a_short_stretch_must_be_later_than_other_load_makes_a_rank(tmp_path: Path) -> None:
    """20 of 60 steps: late by its own doing, late as healthy ranks are, and waiting for a core."""
    part = range(12, 32)
    write(tmp_path, [NOTHING, Extra(sleep=40, steps=part)], steps=60)
    (found,) = findings(tmp_path)
    assert (found.rank, found.cause, found.since_step, found.until_step) == (1, "blocked", 12, 31)
    assert found.cost_s == pytest.approx(0.8, rel=0.1)
    for name, extra in (("little", Extra(sleep=6, steps=part)), ("core", Extra(delay=40, steps=part))):
        write(tmp_path / name, [NOTHING, extra], steps=60)
        assert "late_rank" not in [found.kind for found in findings(tmp_path / name)]


def test_without_readings_a_late_rank_has_no_cause(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(delay=40)], usage=False)
    (found,) = findings(tmp_path)
    assert (found.kind, found.cause) == ("late_rank", None)
    assert found.evidence["core_wait_share"] is None


@pytest.mark.parametrize(("extra", "cause"), [(Extra(cpu=40), "compute"), (Extra(sleep=40), None)])
def test_without_run_queue_delay_waiting_and_sleeping_look_the_same(
    tmp_path: Path, extra: Extra, cause: str | None
) -> None:
    write(tmp_path, [NOTHING, extra], delay_known=False)
    (found,) = findings(tmp_path)
    assert (found.kind, found.cause) == ("late_rank", cause)


def test_readings_of_another_thread_are_no_difference(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(delay=40)])
    path = tmp_path / "rank_1.ddptrace"
    page, records = path.read_bytes()[:4096], bytearray(path.read_bytes()[4096:])
    for slot in range(0, len(records), 128):
        # Every other pass ran on another thread: no two readings of one thread follow each other.
        if records[slot + 8] == 8:
            records[slot + 60] = 1 + records[slot + 48] % 2
    path.write_bytes(page + bytes(records))
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.cause) == ("late_rank", 1, None)


def test_all_ranks_wait_for_a_core(tmp_path: Path) -> None:
    write(tmp_path, [Extra(delay=20), Extra(delay=20)])
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.confidence) == ("core_contention", None, "low")
    assert found.evidence["core_wait_ms"] == pytest.approx(20, rel=0.1)
    assert found.cost_ms == pytest.approx(20, rel=0.1)
    assert "all ranks" in found.message


def test_waiting_for_a_core_that_nobody_waits_for_costs_nothing(tmp_path: Path) -> None:
    """Rank 1 sleeps, and rank 0 would be in time without its delay as well as with it."""
    write(tmp_path, [Extra(delay=15), Extra(sleep=60)])
    assert [(found.kind, found.rank) for found in findings(tmp_path)] == [("late_rank", 1)]


def test_ranks_that_wait_for_a_core_in_turn_are_all_held_up(tmp_path: Path) -> None:
    """Of neither it is sure that it waits in most steps; in each step one of them does."""
    in_turn = [[step for step in range(STEPS) if step % 5 in chosen] for chosen in ({0, 1, 2}, {2, 3, 4})]
    write(tmp_path, [Extra(delay=20, steps=steps) for steps in in_turn])
    found = {one.kind: one.rank for one in findings(tmp_path)}
    assert found["core_contention"] is None


@pytest.mark.parametrize(("cpu", "confidence"), [(12.0, "medium"), (5.5, "low"), (0.0, "")])
def test_inputs_of_different_length_are_reported_by_what_ranks_compute(
    tmp_path: Path, cpu: float, confidence: str
) -> None:
    """Three ranks on two cores: whoever has more to compute also waits for a core."""
    uneven = [
        Extra(cpu=cpu, delay=20, steps=range(who, STEPS, 3), less=range((who + 1) % 3, STEPS, 3))
        for who in range(3)
    ]
    write(tmp_path, uneven, cores=2, load=3.0)
    found = {one.kind: one.confidence for one in findings(tmp_path)}
    assert found.get("uneven_ranks", "") == confidence
    if confidence:
        assert next(iter(found)) == "uneven_ranks"
        # Threads that wait for one another where others take the cores spin, which is no work.
        write(tmp_path / "threads", uneven, threads=[2] * 3, cores=8, load=3.0)
        found = {one.kind: one.confidence for one in findings(tmp_path / "threads")}
        assert found["uneven_ranks"] == "low"


@pytest.mark.parametrize(
    ("cpu", "threads", "found"),
    [(4.2, 1, True), (3.6, 1, True), (2.4, 1, True), (2.4, 2, False), (1.2, 1, False)],
)
def test_inputs_that_differ_a_little_less_are_known_by_the_smallest_steps(
    tmp_path: Path, cpu: float, threads: int, found: bool
) -> None:
    """In each sixth step a rank has far less to do, and the ranks take turns. Threads that spin would look the same."""
    inputs = [Extra(cpu=cpu, delay=20, steps=_turn(who), less=_rest(who)) for who in range(3)]
    write(tmp_path, inputs, threads=[threads] * 3, cores=8)
    assert ("uneven_ranks" in [one.kind for one in findings(tmp_path)]) is found
    # Without smaller steps than usual it may be the machine.
    even = [Extra(cpu=cpu, delay=20, steps=_turn(who), less=_turn(who + 1)) for who in range(3)]
    write(tmp_path / "even", even, cores=2)
    assert "uneven_ranks" not in [one.kind for one in findings(tmp_path / "even")]


def _turn(who: int) -> list[int]:
    return [step for step in range(STEPS) if step % 3 == who % 3]


def _rest(who: int) -> list[int]:
    return _turn(who + 1) + 3 * _turn(who + 1)[::2]


def test_what_only_ever_adds_to_the_ranks_time_is_not_surely_their_input(tmp_path: Path) -> None:
    """The kernel's work for other programs counts as the time of whoever runs meanwhile."""
    busy = [Extra(cpu=25, delay=10, steps=range(who, STEPS, 3)) for who in range(3)]
    write(tmp_path, busy, cores=2, load=6.0)
    found = {one.kind: one.confidence for one in findings(tmp_path)}
    assert found["uneven_ranks"] == "low"


def test_of_two_ranks_one_may_be_late_by_less_than_their_mean_shows(tmp_path: Path) -> None:
    """The slower of two ranks exceeds the mean by half of what it exceeds the other one by."""
    write(tmp_path, [Extra(cpu=9, steps=range(who, STEPS, 2)) for who in range(2)])
    (found,) = findings(tmp_path)
    assert (found.kind, found.confidence) == ("uneven_ranks", "low")
    assert found.evidence["extra_ms"] == pytest.approx(9, rel=0.2)
    assert "more than the others" in found.message


def test_a_little_waiting_for_a_core_is_no_finding(tmp_path: Path) -> None:
    write(tmp_path, [Extra(delay=2), Extra(delay=2)])
    assert load_report(tmp_path).verdict.status == "healthy" and not findings(tmp_path)


def test_a_rank_without_others_that_waits_for_a_core_costs_what_it_waits(tmp_path: Path) -> None:
    write(tmp_path, [Extra(delay=20)])
    found = findings(tmp_path)[0]
    assert (found.kind, found.rank, found.cost_ms) == ("core_contention", 0, pytest.approx(20, rel=0.1))


def test_lateness_in_a_part_of_the_run_has_the_cause_of_that_part(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(delay=40, steps=range(52, 90)), NOTHING], steps=100)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.cause, found.since_step) == ("late_rank", 1, "core", 52)
    assert found.evidence["until_step"] == 89


@pytest.mark.parametrize(
    ("extra", "cause", "fewer"), [(Extra(cpu=40), "compute", 1), (Extra(sleep=40), "blocked", None)]
)
def test_fewer_threads_are_named_unless_the_readings_say_otherwise(
    tmp_path: Path, extra: Extra, cause: str, fewer: int | None
) -> None:
    write(tmp_path, [NOTHING, extra, NOTHING], threads=[4, 1, 4])
    late, _ = findings(tmp_path)
    assert (late.kind, late.cause, late.evidence["torch_threads"]) == ("late_rank", cause, fewer)


def test_a_rank_that_computes_more_is_named_though_the_others_wait_for_cores(tmp_path: Path) -> None:
    """Three ranks on two cores: the two that wait for each other are often as late as the one that computes more."""
    often = [step for step in range(STEPS) if step % 4]
    ranks = [Extra(cpu=30), Extra(delay=36, steps=range(0, STEPS, 4)), Extra(delay=27, steps=often)]
    write(tmp_path, ranks, cores=2, load=4.0)
    found = next(one for one in findings(tmp_path) if one.kind == "late_rank")
    assert (found.rank, found.cause, found.confidence) == (0, "compute", "low")
    assert found.evidence["computes_more_ms"] == pytest.approx(30, rel=0.1)
    assert "rank 0 computes" in found.message and "the last one in 77% of 39 steps" in found.message


def test_a_rank_that_computes_more_is_the_last_one_more_often_than_by_its_turn(tmp_path: Path) -> None:
    """Of three ranks each has its turn in a third of the steps."""

    def kinds(folder: str, others: Sequence[int]) -> list[str]:
        turns = [step for step in range(STEPS) if step % 9 in others]
        rest = sorted(set(range(STEPS)) - set(turns))
        ranks = [Extra(cpu=30), Extra(delay=36, steps=turns), Extra(delay=27, steps=rest)]
        write(tmp_path / folder, ranks, cores=2, load=4.0)
        return [one.kind for one in findings(tmp_path / folder) if one.rank == 0]

    assert kinds("most", (0, 3, 5)) == ["late_rank"]
    assert kinds("by turns", (0, 2, 4, 6, 8)) == []


RHYTHM = tuple(range(5, STEPS, 7))


def test_lateness_now_and_then_is_sure_where_the_delay_is_excluded(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(sleep=90, steps=RHYTHM), NOTHING])
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.confidence) == ("episodic_rank", 1, "high")


def test_lateness_now_and_then_by_waiting_for_a_core_is_not_the_ranks_doing(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(delay=90, steps=RHYTHM), NOTHING])
    verdict = load_report(tmp_path).verdict
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert "waiting for processor cores" in verdict.line


def test_a_few_steps_in_which_one_rank_is_very_late_are_reported(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(cpu=90, steps=(5, 9, 23, 24)), NOTHING])
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.confidence) == ("episodic_rank", 1, "medium")
    # Two events may have hit the same rank by chance.
    write(tmp_path / "two", [NOTHING, Extra(cpu=90, steps=(5, 6, 23, 24)), NOTHING])
    assert findings(tmp_path / "two") == []
    # But no healthy rank is as late as that twice, and the others never.
    write(tmp_path / "long", [NOTHING, Extra(cpu=150, steps=(5, 23)), NOTHING])
    (found,) = findings(tmp_path / "long")
    assert (found.kind, found.rank, found.confidence) == ("episodic_rank", 1, "low")
    assert found.cost_s == pytest.approx(0.3, rel=0.1)
    write(tmp_path / "both", [NOTHING, Extra(cpu=150, steps=(5, 23)), Extra(cpu=150, steps=(15,))])
    assert "episodic_rank" not in [each.kind for each in findings(tmp_path / "both")]


def test_long_waits_for_one_rank_are_reported_beside_a_short_one_for_another(tmp_path: Path) -> None:
    seldom = (5, 9, 14, 20, 23, 31, 36)
    write(tmp_path, [Extra(cpu=25, steps=(27,)), Extra(cpu=90, steps=seldom)])
    (found,) = findings(tmp_path)
    # One of eight may be the other one's by chance in 7% of runs.
    assert (found.kind, found.rank, found.confidence) == ("episodic_rank", 1, "medium")
    assert found.evidence["times"] == 7
    write(tmp_path / "both", [Extra(cpu=80, steps=(27,)), Extra(cpu=90, steps=seldom)])
    verdict = load_report(tmp_path / "both").verdict
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert "of the time for one that is late in a few steps" in verdict.line


def test_a_few_late_steps_are_not_sure_where_threads_wait_for_each_other(tmp_path: Path) -> None:
    """The helpers of the thread that runs backward wait for a core as well, and nobody records for how long."""
    few = Extra(cpu=90, delay=20, steps=(5, 9, 23, 24))
    write(tmp_path, [Extra(delay=20), Extra(delay=20), few], threads=[2, 2, 2], cores=2)
    found = {one.kind: one.confidence for one in findings(tmp_path)}
    assert found == {"oversubscribed_threads": "low", "episodic_rank": "low"}


def test_lateness_now_and_then_is_reported_beside_lateness_that_is_unsure(tmp_path: Path) -> None:
    write(tmp_path, [Extra(cpu=4.5), Extra(cpu=90, steps=RHYTHM)], cores=2)
    found = [(each.kind, each.rank, each.confidence) for each in findings(tmp_path)]
    assert found == [("episodic_rank", 1, "high"), ("late_rank", 0, "low")]


def test_lateness_now_and_then_by_the_collector_is_reported(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(cpu=90, collector=80, steps=RHYTHM), NOTHING])
    found = findings(tmp_path)[0]
    assert (found.kind, found.rank) == ("episodic_rank", 1)
    assert found.evidence["collector_share"] == pytest.approx(80 / 90, abs=0.1)
    assert "garbage collector" in found.message and "gc.freeze()" in found.advice


def test_the_collector_takes_part_of_every_step(tmp_path: Path) -> None:
    write(tmp_path, [Extra(cpu=10, collector=10)] * 2)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank) == ("collector_pauses", None)
    assert found.cost_ms == pytest.approx(10, rel=0.1)


def test_short_collections_are_no_finding(tmp_path: Path) -> None:
    write(tmp_path, [Extra(collector=2)] * 2)
    assert findings(tmp_path) == []


@pytest.mark.parametrize(("threads", "kinds"), [(1, {"pause"}), (2, {"oversubscribed_threads"})])
def test_threads_that_spin_now_and_then_are_no_pause_of_all_ranks(
    tmp_path: Path, threads: int, kinds: set[str]
) -> None:
    """Every fourth step takes four times as long: with more threads than cores, because they wait for each other's."""
    slow = Extra(cpu=60, delay=60, steps=range(1, 60, 4))
    write(tmp_path, [slow] * 2, steps=60, cores=2, threads=[threads] * 2)
    found = {finding.kind: finding for finding in findings(tmp_path)}
    assert set(found) == kinds
    if threads > 1:
        crowded = found["oversubscribed_threads"]
        # On average: a typical step waits for nothing.
        assert crowded.confidence == "low" and crowded.evidence["core_wait_ms"] == pytest.approx(15, rel=0.2)


def test_a_pause_in_which_ranks_sleep_is_one_however_many_threads_there_are(tmp_path: Path) -> None:
    sleeps = Extra(sleep=120, delay=20, steps=range(1, 60, 4))
    write(tmp_path, [sleeps] * 2, steps=60, cores=2, threads=[2, 2])
    assert "pause" in {finding.kind for finding in findings(tmp_path)}


def test_no_rank_is_said_to_take_the_cores_for_which_others_wait_in_a_few_steps_only(tmp_path: Path) -> None:
    waits = Extra(cpu=60, delay=60, steps=range(1, 60, 4))
    write(tmp_path, [Extra(beside=60, steps=range(60)), waits], steps=60, cores=2, threads=[2, 2])
    (crowded,) = (one for one in findings(tmp_path) if one.kind == "oversubscribed_threads")
    assert (crowded.rank, crowded.confidence) == (None, "low")
