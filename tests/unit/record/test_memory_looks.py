"""Readings of the memory of a process, and the limits of memory and cores around it."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from pyddpdiag.model.memory import MOST, memory_from_json, memory_to_json
from pyddpdiag.record import memory
from pyddpdiag.record.cpu_quota import CpuQuota
from pyddpdiag.record.memory import MemoryLooks

GB = 2**30


def looks(folder: Path, **files: str) -> MemoryLooks:
    """In a control group with these files."""
    group = folder / "job"
    group.mkdir(parents=True)
    for name, content in files.items():
        (group / name.replace("_", ".", 1)).write_text(content, encoding="ascii")
    (folder / "own").write_text("0::/job\n", encoding="ascii")
    return MemoryLooks(folder, folder / "own")


def test_the_container_says_what_is_left(tmp_path: Path) -> None:
    stat = f"anon 1\ninactive_file {GB}\nactive_file {GB}\n"
    found = looks(tmp_path, memory_max=f"{4 * GB}", memory_current=f"{3 * GB}", memory_stat=stat)
    found.look()
    kept = found.kept()
    assert kept.container and kept.limit == 4 * GB and kept.free[0] <= 3 * GB
    assert memory_from_json(memory_to_json(kept)).free == kept.free


def test_without_a_limit_the_machine_does(tmp_path: Path) -> None:
    found = looks(tmp_path, memory_max="max", memory_current=f"{GB}")
    found.look()
    kept = found.kept()
    assert not kept.container and 0 < kept.free[0] < kept.limit and kept.own[0] > 2**20


def test_a_long_run_keeps_a_bounded_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = looks(tmp_path)
    now = 0

    def later() -> int:
        nonlocal now
        now += 10**9
        return now

    monkeypatch.setattr(memory, "monotonic_ns", later)
    for _ in range(3 * MOST):
        found.look()
    kept = found.kept()
    assert MOST // 2 <= len(kept.at_ns) <= MOST and kept.at_ns[0] == 10**9


def _hold(ready: multiprocessing.synchronize.Event, done: multiprocessing.synchronize.Event) -> None:
    kept = bytearray(b"x") * (64 * 2**20)
    ready.set()
    done.wait()
    del kept


def test_what_started_processes_have_is_counted(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    child = context.Process(target=_hold, args=(ready, done))
    child.start()
    try:
        assert ready.wait(240)
        found = looks(tmp_path)
        found.look()
        assert found.kept().workers[0] >= 64 * 2**20
    finally:
        done.set()
        child.join()


def test_a_system_that_refuses_is_not_asked_again_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks at lines are on the same thread, and the training opens the recorder that has them."""
    asked = []

    def refuse() -> None:
        asked.append(1)
        raise OSError("no /proc here")

    monkeypatch.setattr(memory.psutil, "virtual_memory", refuse)
    found = looks(tmp_path)
    found.look()
    found.look()
    kept = found.kept()
    assert len(asked) == 1 and kept.at_ns == () and memory_from_json(memory_to_json(kept)).at_ns == ()


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".", 1)).write_text(text, encoding="ascii")


def stat(periods: int, throttled: int, us: int) -> str:
    return f"usage_usec 99\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {us}\n"


def test_the_tightest_limit_around_the_process_counts_from_when_it_is_opened(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/pods/train\n", encoding="ascii")
    put(root, cpu__max="max 100000\n")
    put(root / "pods", cpu__max="150000 100000\n", cpu__stat=stat(10, 2, 5_000))
    put(root / "pods" / "train", cpu__max="400000 100000\n", cpu__stat=stat(10, 0, 0))
    quota = CpuQuota(root, own)
    put(root / "pods", cpu__stat=stat(110, 42, 905_000))
    assert quota.now() == {
        "milli_cores": 1500,
        "periods": 100,
        "throttled_periods": 40,
        "throttled_us": 900_000,
    }


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/../../elsewhere\n", encoding="ascii")
    put(root, cpu__max="50000 100000\n", cpu__stat=stat(1, 1, 1))
    assert CpuQuota(root, own).now()["milli_cores"] == 500


def test_version_1_counts_nanoseconds(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n", encoding="ascii")
    group = root / "cpu,cpuacct" / "docker" / "x"
    limit = {"cpu__cfs_quota_us": "200000\n", "cpu__cfs_period_us": "100000\n"}
    put(group, **limit, cpu__stat="nr_periods 5\nnr_throttled 1\nthrottled_time 1000000\n")
    quota = CpuQuota(root, own)
    put(group, cpu__stat="nr_periods 25\nnr_throttled 11\nthrottled_time 8000000\n")
    assert quota.now() == {"milli_cores": 2000, "periods": 20, "throttled_periods": 10, "throttled_us": 7_000}


def test_without_a_limit_or_any_files_there_is_none(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    assert CpuQuota(root, own).now() == {}
    own.write_text("4:cpu:/a\n0::/a\nnonsense\n", encoding="ascii")
    put(root / "a", cpu__max="max 100000\n")
    put(root / "cpu" / "a", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert CpuQuota(root, own).now() == {}
    # And that of the machine here can be read, whatever it is.
    assert all(value >= 0 for value in CpuQuota().now().values())
