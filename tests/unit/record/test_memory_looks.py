"""Readings of the memory of a process and of the limits around it."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from pyddpdiag.model.memory import MOST, memory_from_json, memory_to_json
from pyddpdiag.record import memory
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
