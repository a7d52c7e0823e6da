"""The sidecar is written by any thread, and by what interrupts one: always whole, the last word in it."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.files_in_use import in_use

from pyddpdiag.record import sidecar as sidecars
from pyddpdiag.record.sidecar import Sidecar
from pyddpdiag.record.training import TrainingWatch


class Core:
    """What a sidecar asks of a native recorder, of which it needs no more here."""

    def __init__(self) -> None:
        self.asked: Callable[[], None] = lambda: None

    def clock(self) -> dict[str, Any]:
        return {"name": "none"}

    def groups(self) -> list[Any]:
        return []

    def layouts(self) -> list[Any]:
        self.asked()
        return []


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def sidecar(tmp_path: Path, core: Core) -> Sidecar:
    return Sidecar(tmp_path / "rank_0.json", core, bytes(16), 0, 1, lambda: None, TrainingWatch(core))  # type: ignore[arg-type]


def sidecar_of(folder: Path) -> Any:
    assert [path.name for path in folder.iterdir()] == ["rank_0.json"]
    return json.loads((folder / "rank_0.json").read_text(encoding="utf-8"))


def test_many_threads(tmp_path: Path, sidecar: Sidecar) -> None:
    failed: list[BaseException] = []
    begin = threading.Barrier(8)

    def write(number: int) -> None:
        try:
            begin.wait()
            for turn in range(50):
                sidecar.write([], closed=number == 7 and turn == 49)
                json.loads((tmp_path / "rank_0.json").read_text(encoding="utf-8"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sidecar_of(tmp_path)["closed"] is True


def test_what_is_new_in_each_step_is_written_ever_more_rarely(
    sidecar: Sidecar, core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that makes a process group in each step: each write takes 10 ms, and 200 steps take 1 s."""
    now_ns, written = [10**9], []
    monkeypatch.setattr(sidecars, "monotonic_ns", lambda: now_ns[0])

    def replace_file(*_: Any, **__: Any) -> None:
        now_ns[0] += 10**7
        written.append(now_ns[0])

    monkeypatch.setattr(sidecars, "replace_file", replace_file)
    for step in range(1, 201):
        core.groups = lambda step=step: [(number, "", None) for number in range(step)]  # type: ignore[misc]
        if sidecar.behind:
            sidecar.write({}, closed=False)
        now_ns[0] += 5 * 10**6
    assert len(written) == sidecars._FIRST_WRITES
    now_ns[0] += 2 * 10**9
    assert sidecar.behind


def test_a_signals_handler_that_closes_in_the_middle_of_a_write(
    tmp_path: Path, sidecar: Sidecar, core: Core
) -> None:
    times = []

    def interrupt() -> None:
        times.append(1)
        if len(times) == 1:
            sidecar.write([], closed=True)

    core.asked = interrupt
    sidecar.write([], closed=False)
    assert sidecar_of(tmp_path)["closed"] is True
    assert len(times) == 2


def test_a_write_that_fails_leaves_the_next_one_possible(tmp_path: Path, sidecar: Sidecar) -> None:
    sidecar.write([], closed=False)
    (tmp_path / "rank_0.json.tmp").mkdir()
    with pytest.raises(OSError, match="rank_0"):
        sidecar.write([], closed=True)
    (tmp_path / "rank_0.json.tmp").rmdir()
    assert sidecar_of(tmp_path)["closed"] is False
    sidecar.write([], closed=False)
    assert sidecar_of(tmp_path)["closed"] is True


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path, sidecar: Sidecar) -> None:
    (tmp_path / "rank_0.json.tmp").write_text('{"format": "ddp', encoding="utf-8")
    sidecar.write([], closed=False)
    assert sidecar_of(tmp_path)["format"] == "ddptrace"


def test_the_last_state_is_written_though_somebody_reads_the_file(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar.write({}, closed=False)
    failed = in_use(monkeypatch, 20)  # for longer than the training would wait
    sidecar.write({}, closed=True)
    assert len(failed) == 20 and sidecar_of(tmp_path)["closed"] is True


def test_what_could_not_be_written_is_written_later(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar.write({}, closed=False)
    now_ns = [10**12]
    monkeypatch.setattr(sidecars, "monotonic_ns", lambda: now_ns[0])
    in_use(monkeypatch, 10**9)
    with pytest.raises(PermissionError):
        sidecar.write({}, closed=False)
    # Not in every step: the training waits for each try.
    assert not sidecar.behind
    now_ns[0] += 60 * 10**9
    assert sidecar.behind
    monkeypatch.undo()
    sidecar.write({}, closed=False)
    assert not sidecar.behind
