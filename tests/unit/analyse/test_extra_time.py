"""What extra time is spent for: how much at every line alike, and in which words."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.processor_use import NOTHING, Extra, write
from support.reported import findings

from pyddpdiag.analyse.bounds import SHARED_TIMES
from pyddpdiag.analyse.episodes import ExtraTime, stretch, waits_per_cpu


def test_how_much_a_rank_may_be_slower_at_every_line() -> None:
    """By what its processor takes more, and not by what it sleeps."""
    assert stretch(10.0, 20.0, 1.0, 0.0) == pytest.approx(3.0)
    assert stretch(10.0, 20.0, 0.3, 0.68) == pytest.approx(2.96)
    assert stretch(10.0, 20.0, 0.02, 0.03) == pytest.approx(1.1)
    assert stretch(10.0, 20.0, None, 1.0) == pytest.approx(3.0)
    # Readings of two clocks may add up to more than all, or to less than nothing.
    assert stretch(10.0, 20.0, 0.9, 0.4) == pytest.approx(3.0)
    assert (
        stretch(10.0, -5.0, 0.9, -0.1)
        == stretch(0.0, 5.0, 1.0, 0.0)
        == stretch(10.0, 20.0, None, None)
        == 1.0
    )


def test_what_a_loader_without_workers_computes_is_data() -> None:
    assert ExtraTime(data=0.95, cpu=0.94, core=0.1).cause == "data"
    assert ExtraTime(data=0.3, cpu=0.9, core=0.0).cause == "compute"


def test_a_rank_that_waits_for_a_core_is_not_said_to_compute_all_the_time(tmp_path: Path) -> None:
    for name, extra, said in (
        (
            "busy",
            Extra(cpu=30, delay=20),
            "(it computes for 60% of that, and waits for a processor core for 40%), in ",
        ),
        ("quiet", Extra(cpu=40), "(it computes for 100% of that), in "),
    ):
        write(tmp_path / name, [NOTHING, extra, NOTHING])
        (found,) = findings(tmp_path / name)
        assert (found.kind, found.cause) == ("late_rank", "compute") and said in found.message
        assert "all that time" not in found.message


def test_nor_are_all_ranks(tmp_path: Path) -> None:
    write(tmp_path, [replace(Extra(cpu=40), steps=range(40, 80))] * 2, steps=80)
    (found,) = (each for each in findings(tmp_path) if each.kind == "slower_steps")
    assert "; they compute for 100% of the difference; " in found.message


# Base: 30 ms of computing in each step.
@pytest.mark.parametrize(
    ("others", "extra", "cause"),
    [
        # On a full machine who computes for longer also waits for longer: 2.7 times the computing.
        (Extra(delay=5), Extra(cpu=50, delay=100), "compute"),
        # 1.7 times the computing, and as long a wait for each millisecond of it as the others have.
        (Extra(delay=60), Extra(cpu=21, delay=102), "compute"),
        # Other programs in the same caches, and on its core: 1.4 times.
        (NOTHING, Extra(cpu=12, delay=60), "core"),
        # So they are where the others wait, too: 1.5 times, and 3.9 ms of waiting for each of computing beside 2.7.
        (Extra(delay=81), Extra(cpu=15, delay=175), "core"),
        # Its other threads take the core.
        (NOTHING, Extra(delay=60, beside=80), "compute"),
    ],
)
def test_waits_for_a_core_belong_to_the_computing_that_brings_them(
    tmp_path: Path, others: Extra, extra: Extra, cause: str
) -> None:
    write(tmp_path, [others, extra, others], cores=1, load=8.0)
    found = next(each for each in findings(tmp_path) if each.kind == "late_rank")
    assert (found.rank, found.cause) == (1, cause)


def test_the_waits_that_come_with_more_work_on_all_ranks_are_no_reason(tmp_path: Path) -> None:
    half = range(40, 80)
    grows = Extra(cpu=60, delay=90, steps=half)
    write(tmp_path, [grows, grows], steps=80, cores=1, load=8.0)
    found = next(each for each in findings(tmp_path) if each.kind == "slower_steps")
    assert found.cause == "compute"


def test_what_shared_caches_can_do_is_no_more_computing() -> None:
    """1.56 times, measured beside a compiler, and 1.62 beside seven programs; two threads of a core each take 1.7."""
    assert 1.62 < SHARED_TIMES <= 1.7
    assert waits_per_cpu((1.62, 3.0), (1.0, 0.2)) == pytest.approx(0.2)
    assert waits_per_cpu((1.8, 3.0), (1.0, 0.2)) == pytest.approx(3.0 / 1.8)
    assert waits_per_cpu((1.0, 3.0), (0.0, 0.0)) == pytest.approx(3.0)
    assert ExtraTime(cpu=0.3, core=0.7).cause == "core"
    assert ExtraTime(cpu=0.3, core=0.7, waits_per_cpu=2.0).cause == "compute"


@pytest.mark.parametrize(
    ("extra", "cause"),
    [
        # After each write to a disk it waits for a core, on a busy machine for longer than for the disk.
        (ExtraTime(cpu=0.1, core=0.6), "blocked"),
        (ExtraTime(cpu=0.1, core=0.6, disk=0.2), "disk"),
        (ExtraTime(cpu=0.35, core=0.6), "compute"),
    ],
)
def test_waits_for_a_core_at_a_line_where_nobody_else_is_come_with_what_it_does_there(
    extra: ExtraTime, cause: str
) -> None:
    assert extra.cause == "core"
    assert replace(extra, at_a_line=True).cause == cause


def test_a_rank_that_computes_more_and_is_mostly_in_the_middle(tmp_path: Path) -> None:
    """Typically it is not later than the others at all, so there is no time to take parts of."""
    steps = 200
    one, other = ([step for step in range(steps) if step % 11 in chosen] for chosen in ((1, 4, 7), (2, 6, 9)))
    ranks = [Extra(cpu=30, steps=range(steps)), Extra(delay=36, steps=one), Extra(delay=36, steps=other)]
    write(tmp_path, ranks, cores=2, load=4.0, steps=steps)
    found = next(each for each in findings(tmp_path) if each.kind == "late_rank")
    assert (found.rank, found.cause, found.evidence["extra_ms"]) == (0, "compute", 0.0)


def test_beside_a_rank_without_readings_nothing_is_said_of_the_cause(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(cpu=40)], unread=[0])
    found = next(each for each in findings(tmp_path) if each.kind == "late_rank")
    assert (found.rank, found.cause, found.evidence["cpu_share"]) == (1, None, None)


def test_lateness_now_and_then_while_a_thread_of_the_rank_computes(tmp_path: Path) -> None:
    """A checkpoint that a thread pickles holds the interpreter's lock."""
    write(tmp_path, [NOTHING, Extra(sleep=90, beside=70, steps=range(5, 40, 7)), NOTHING])
    (found,) = findings(tmp_path)
    assert (
        found.kind == "episodic_rank"
        and "other threads of its process computed (70.0 ms more)" in found.message
    )
    assert "GIL" in found.advice and found.evidence["other_threads_ms"] == pytest.approx(70, rel=0.01)
