"""More threads than cores: who has them, and who waits because of that."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.processor_use import NOTHING, STEPS, Extra, write
from support.reported import findings


def test_threads_of_all_ranks_on_too_few_cores(tmp_path: Path) -> None:
    write(tmp_path, [Extra(delay=20)] * 2, threads=[4, 4], cores=4)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank) == ("oversubscribed_threads", None)
    assert (found.evidence["threads"], found.evidence["cores"]) == (8, 4)
    assert found.advice == "export OMP_NUM_THREADS=2"
    windows = tmp_path / "windows"
    write(windows, [Extra(delay=20)] * 2, threads=[4, 4], cores=4, platform="Windows-10-10.0.19045-SP0")
    assert findings(windows)[0].advice == "$env:OMP_NUM_THREADS = '2'"
    # Twice as many as cores: that may be right.
    assert found.confidence == "low"
    write(tmp_path / "many", [Extra(delay=20)] * 2, threads=[8, 8], cores=4)
    assert findings(tmp_path / "many")[0].confidence == "high"


def test_ranks_of_one_thread_each_are_no_matter_of_threads(tmp_path: Path) -> None:
    write(tmp_path, [Extra(delay=20)] * 4, threads=[1] * 4, cores=2)
    assert [found.kind for found in findings(tmp_path)] == ["core_contention"]


def test_one_rank_with_most_of_the_threads_is_named_once(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(delay=40, cpu=10)], threads=[1, 16], cores=2)
    found, note = findings(tmp_path)
    assert (found.kind, found.rank, note.kind) == ("oversubscribed_threads", 1, "settings_differ")
    assert found.cost_ms == pytest.approx(40, rel=0.1)


def test_one_rank_whose_threads_take_the_cores_from_itself_is_named_once(tmp_path: Path) -> None:
    """It waits for the cores that they keep busy: no lock, and nothing else that computes."""
    slow = Extra(delay=100, beside=200)
    write(tmp_path / "torch", [Extra(delay=15), slow], threads=[1, 16], cores=2)
    found, *others = findings(tmp_path / "torch")
    assert (found.kind, found.rank, found.confidence) == ("oversubscribed_threads", 1, "high")
    assert [other.kind for other in others] == ["settings_differ"]
    assert found.cost_ms == pytest.approx(100, rel=0.1)
    assert found.message.endswith("rank 0 waits up to 15.0 ms for a core, and rank 1 itself 100 ms.")
    # Which threads those are that torch does not know of, the lateness says.
    write(tmp_path / "others", [Extra(delay=15), slow], threads=[1, 1], cores=2)
    assert {one.kind for one in findings(tmp_path / "others")} == {"late_rank", "oversubscribed_threads"}


def test_who_takes_the_cores_is_named_and_not_the_rank_that_waits_for_them(tmp_path: Path) -> None:
    """The rank with 16 threads is done early. The other one is late, as it waits for cores and has fewer threads."""
    write(tmp_path, [Extra(delay=40, cpu=15), Extra(beside=60, delay=10)], threads=[1, 16], cores=4, load=9.0)
    found, *others = findings(tmp_path)
    assert (found.kind, found.rank, found.confidence) == ("oversubscribed_threads", 1, "high")
    assert found.evidence["other_threads_cpu_ms"] == pytest.approx(90, rel=0.1)
    assert found.evidence["threads_of_rank"] == 16
    assert "rank 1 runs 16 threads on 4 cores" in found.message and "takes them from rank 0" in found.message
    assert "OMP_NUM_THREADS" in found.advice and "torch.set_num_threads(2)" in found.advice
    assert [other.kind for other in others] == ["settings_differ"]


def test_threads_that_torch_does_not_know_of_are_named_as_well(tmp_path: Path) -> None:
    write(tmp_path, [Extra(delay=40), Extra(beside=60)], threads=[1, 1], cores=4)
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.confidence) == ("oversubscribed_threads", 1, "medium")
    assert "py-spy dump" in found.advice


@pytest.mark.parametrize(
    "ranks",
    [
        [Extra(delay=40), NOTHING],  # 16 threads that have nothing to do
        [Extra(delay=200), Extra(beside=60)],  # other programs take far more than they do
    ],
    ids=["idle threads", "other programs"],
)
def test_threads_that_do_not_explain_the_waiting_are_not_blamed(tmp_path: Path, ranks: list[Extra]) -> None:
    write(tmp_path, ranks, threads=[1, 16], cores=8, load=20.0)
    kinds = {one.kind: one for one in findings(tmp_path)}
    assert "oversubscribed_threads" not in kinds
    # And on such a machine it may be anybody's turn to wait, whatever the threads.
    assert kinds["late_rank"].confidence == "low"


def test_far_too_many_threads_are_blamed_beside_other_programs_and_not_the_rank_that_waits(
    tmp_path: Path,
) -> None:
    write(tmp_path, [Extra(delay=250), Extra(beside=75)], threads=[1, 16], cores=4, load=20.0)
    found, *others = findings(tmp_path)
    assert (found.kind, found.rank, found.confidence) == ("oversubscribed_threads", 1, "medium")
    assert "late_rank" not in [other.kind for other in others]
    # With as many threads on a larger host, it is the other programs.
    write(tmp_path / "fits", [Extra(delay=250), Extra(beside=75)], threads=[1, 16], cores=8, load=20.0)
    assert findings(tmp_path / "fits")[0].kind == "late_rank"


def test_far_too_many_threads_of_all_ranks_are_too_many_beside_other_programs_too(tmp_path: Path) -> None:
    """The ranks have less than half of the cores."""
    write(tmp_path, [Extra(delay=300, beside=90)] * 2, threads=[16, 16], cores=2, load=20.0)
    (found,) = findings(tmp_path)
    assert (found.kind, found.confidence, found.evidence["threads"]) == ("oversubscribed_threads", "low", 32)
    assert isinstance(found.evidence["busy_cores"], float) and found.evidence["busy_cores"] < 1.0
    # A few more than there are cores, and it is the other programs.
    write(tmp_path / "few", [Extra(delay=300, beside=90)] * 2, threads=[2, 2], cores=2, load=20.0)
    assert [one.kind for one in findings(tmp_path / "few")] == ["core_contention"]


def test_threads_beside_that_nobody_waits_for_are_no_finding(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(beside=60)], threads=[1, 1], cores=8)
    assert [one.kind for one in findings(tmp_path)] == []


@pytest.mark.parametrize(
    ("threads", "cores"),
    # The last ones are many and idle: the ranks keep 2 of 32 cores busy, and somebody else takes the cores.
    [([2, 2], 4), ([4, 4], 16), ([4, 4], 0), ([0, 0], 2), ([64, 64], 32)],
)
def test_threads_that_fit_or_are_not_known_or_idle_are_not_blamed(
    tmp_path: Path, threads: list[int], cores: int
) -> None:
    write(tmp_path, [Extra(delay=20)] * 2, threads=threads, cores=cores)
    assert [found.kind for found in findings(tmp_path)] == ["core_contention"]


def quota(throttled: int) -> dict[str, int]:
    return {"milli_cores": 500, "periods": 100, "throttled_periods": throttled, "throttled_us": 9_000_000}


def test_a_limit_that_holds_a_rank_back_is_the_cause_of_its_lateness(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(delay=40)], threads=[1, 1], cores=4, quota=[{}, quota(80)])
    (found,) = findings(tmp_path)
    assert (found.kind, found.rank, found.confidence) == ("cpu_quota", 1, "high")
    assert (found.evidence["quota_cores"], found.evidence["throttled_share_of_periods"]) == (0.5, 0.8)
    assert "held back by a limit of 0.5 cores" in found.message and "docker run --cpus" in found.advice


def test_a_limit_that_holds_in_bursts_is_named_though_steps_are_unlike(tmp_path: Path) -> None:
    """It gives each period's share at once: some steps wait long, and the others not at all."""
    some = Extra(delay=60, steps=[step for step in range(STEPS) if step % 9 < 5])
    write(tmp_path / "limit", [some, some], threads=[1, 1], cores=4, quota=[quota(100)] * 2)
    found = findings(tmp_path / "limit")[0]
    assert (found.kind, found.rank, found.confidence) == ("cpu_quota", None, "high")
    # In fewer than half of the steps, a typical one does not: it is their average that counts.
    seldom = Extra(delay=60, steps=[step for step in range(STEPS) if step % 9 < 4])
    write(tmp_path / "seldom", [NOTHING, seldom], threads=[1, 1], cores=4, quota=[{}, quota(100)])
    found = findings(tmp_path / "seldom")[0]
    assert (found.kind, found.rank) == ("cpu_quota", 1) and found.cost_ms == pytest.approx(
        60 * 4 / 9, rel=0.1
    )
    # Without the limit nobody knows whether a typical step waits.
    write(tmp_path / "none", [some, some], threads=[1, 1], cores=4)
    assert all(one.confidence == "low" for one in findings(tmp_path / "none"))


@pytest.mark.parametrize(
    ("extra", "throttled", "kinds"),
    [(Extra(delay=40), 2, ["late_rank"]), (NOTHING, 80, []), (Extra(cpu=40), 80, ["late_rank"])],
    ids=["seldom reached", "nobody waits", "computes"],
)
def test_a_limit_that_holds_nobody_back_is_not_blamed(
    tmp_path: Path, extra: Extra, throttled: int, kinds: list[str]
) -> None:
    write(tmp_path, [NOTHING, extra], threads=[1, 1], cores=4, quota=[{}, quota(throttled)])
    assert [found.kind for found in findings(tmp_path)] == kinds


def test_ranks_that_are_bound_to_too_few_of_the_machines_cores(tmp_path: Path) -> None:
    waits = [Extra(delay=20)] * 4
    write(tmp_path, waits, threads=[1] * 4, cores=2, machine_cores=[16] * 4)
    (found,) = findings(tmp_path)
    assert (found.kind, found.evidence["cores"], found.evidence["machine_cores"]) == ("cpu_quota", 2, 16)
    assert "4 ranks on host one may run on 2 cores only, of 16" in found.message
    write(tmp_path / "all", waits, threads=[1] * 4, cores=2, machine_cores=[2] * 4)
    assert [one.kind for one in findings(tmp_path / "all")] == ["core_contention"]


@pytest.mark.parametrize(("steps", "sure"), [(range(30, 60), "medium"), (range(80), "high")])
@pytest.mark.parametrize(("threads", "delay", "is_sure"), [(2, 40.0, False), (2, 0.0, True), (1, 40.0, True)])
def test_a_rank_whose_threads_may_spin_for_want_of_a_core_is_not_surely_late(
    tmp_path: Path, threads: int, delay: float, is_sure: bool, steps: range, sure: str
) -> None:
    """Beside other work, the threads of a healthy rank waited for each other in this way, in some runs in each step."""
    extra = Extra(cpu=60, delay=delay, steps=steps)
    write(tmp_path, [extra, NOTHING], steps=80, load=1.0, cores=2, threads=[threads] * 2)
    found = next(each for each in findings(tmp_path) if each.kind == "late_rank")
    assert (found.rank, found.cause, found.confidence) == (0, "compute", sure if is_sure else "low")
    assert ("spin" in found.message) == ("OMP_NUM_THREADS" in str(found.advice)) == (not is_sure)


@pytest.mark.parametrize(
    ("threads", "beside", "culprit"), [([2, 2], 35, None), ([2, 2], 90, 1), ([1, 2], 35, 1), ([1, 1], 35, 1)]
)
def test_torch_threads_of_a_rank_that_may_spin_take_no_cores_unless_it_has_more_of_them(
    tmp_path: Path, threads: list[int], beside: float, culprit: int | None
) -> None:
    """Beside other work, one thread of a healthy rank waited for the other that had no core."""
    write(tmp_path, [Extra(delay=20), Extra(delay=40, beside=beside)], threads=threads, cores=2)
    found = next(each for each in findings(tmp_path) if each.kind == "oversubscribed_threads")
    assert (found.rank, found.confidence) == (culprit, "low" if culprit is None else "medium")
