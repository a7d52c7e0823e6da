"""What a reader sees of the processes that write the traces."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support import own_clock
from support.trace_writer import IN_FLIGHT, MS, RankWriter

from pyddpdiag.model.now import Now, RankNow
from pyddpdiag.pipeline import load_report
from pyddpdiag.system import clock as machine_clock
from pyddpdiag.system import processes
from pyddpdiag.trace import now
from pyddpdiag.trace import now as module
from pyddpdiag.trace.now import observe
from pyddpdiag.trace.run import open_run

AGO_MS = 90_000


@pytest.fixture
def process() -> Iterator[psutil.Process]:
    """A process that only waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            yield psutil.Process(child.pid)
        finally:
            child.kill()


def own_writer(pid: int, *, opened_ago_ms: int = 0, **header: object) -> RankWriter:
    """A trace as a recorder on this machine leaves it, opened so long ago; its newest record is `AGO_MS` old."""
    begun = time.perf_counter_ns() - AGO_MS * MS
    writer = RankWriter(
        pid=pid,
        closed=0,
        monotonic_ns=time.perf_counter_ns() - opened_ago_ms * MS,
        wall_ns=time.time_ns(),
        clock_name=own_clock.NAME,
        **{"clock_identity": machine_clock.clock_identity().encode(), **header},
    )
    writer.sidecar["host"] = socket.gethostname()
    writer.bucket(0, begun - 5 * MS, begun, 0, state=IN_FLIGHT)
    return writer


def seen(folder: Path) -> tuple[Now, RankNow]:
    now = observe(open_run(folder))
    return now, now.ranks[0]


def open_ms(folder: Path) -> float:
    return load_report(folder).in_flight_operations[0].open_ms


def test_what_a_live_process_has_in_flight_is_measured_up_to_now(
    tmp_path: Path, process: psutil.Process
) -> None:
    own_writer(process.pid).write(tmp_path)
    before = time.perf_counter_ns()
    now, rank = seen(tmp_path)
    assert (rank.status, rank.alive, now.is_live) == ("running", True, True)
    assert before <= now.reader_ns <= time.perf_counter_ns()
    assert rank.silent_ms is not None and AGO_MS <= rank.silent_ms < AGO_MS + 60_000
    assert open_ms(tmp_path) >= AGO_MS + 5
    report = load_report(tmp_path)
    assert (report.ranks[0].process, report.ranks[0].silent_ms is not None) == ("running", True)


def test_a_stopped_process_lives_and_its_operations_go_on(tmp_path: Path, process: psutil.Process) -> None:
    own_writer(process.pid).write(tmp_path)
    process.suspend()
    deadline = time.monotonic() + 20
    while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    _, rank = seen(tmp_path)
    assert (rank.status, rank.alive) == ("stopped", True)
    assert open_ms(tmp_path) >= AGO_MS
    process.resume()


def test_a_dead_process_waits_for_nothing(tmp_path: Path, process: psutil.Process) -> None:
    own_writer(process.pid).write(tmp_path)
    # Also while nobody has collected it.
    process.kill()
    deadline = time.monotonic() + 20
    while processes.find(process.pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    now, rank = seen(tmp_path)
    assert (rank.status, rank.alive, now.is_live) == ("dead", False, False)
    assert rank.silent_ms is not None and rank.silent_ms >= AGO_MS
    assert open_ms(tmp_path) == 5.0


def test_a_pid_that_was_given_to_another_process_is_reported_by_the_start_time(
    tmp_path: Path, process: psutil.Process
) -> None:
    writer = own_writer(process.pid)
    writer.sidecar["process_started_s"] = process.create_time() - 100
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "dead"
    writer.sidecar["process_started_s"] = process.create_time()
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "running"


def test_a_process_younger_than_its_trace_is_another_one(tmp_path: Path, process: psutil.Process) -> None:
    """An older recorder did not write the start time."""
    own_writer(process.pid, opened_ago_ms=600_000).write(tmp_path)
    assert seen(tmp_path)[1].status == "dead"


@pytest.mark.parametrize(
    "header",
    [
        {"clock_identity": b"another machine"},
        {"clock_identity": b""},
        {"clock_name": b"another clock"},
        {"clock_name": b""},
        {"monotonic_ns": 2**60},
    ],
)
def test_a_trace_of_another_clock_tells_nothing(tmp_path: Path, header: dict[str, object]) -> None:
    writer = own_writer(os.getpid())
    writer.header |= header
    writer.write(tmp_path)
    now, rank = seen(tmp_path)
    assert (rank.status, rank.alive, rank.silent_ms, now.is_live) == ("unknown", None, None, False)
    assert open_ms(tmp_path) == 5.0


def test_pids_of_another_container_are_out_of_sight(tmp_path: Path) -> None:
    writer = own_writer(os.getpid())
    writer.sidecar["host"] = "another-host"
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "unknown"
    writer.sidecar["process_namespace"] = processes.namespace()
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "running"
    writer.sidecar |= {"host": socket.gethostname(), "process_namespace": "pid:[1]"}
    writer.write(tmp_path)
    _, rank = seen(tmp_path)
    # The clock is the same one all the same.
    assert rank.status == "unknown" and rank.silent_ms is not None
    assert open_ms(tmp_path) == 5.0


def beaten_writer(ago_ms: int, *, wall_ago_ms: int = 0, **header: object) -> RankWriter:
    """As `own_writer`, with a heartbeat so long ago; its machine's wall clock is `wall_ago_ms` behind."""
    writer = own_writer(os.getpid())
    writer.header |= header
    writer.header["wall_ns"] -= wall_ago_ms * MS
    writer.header["heartbeat_ns"] = writer.header["monotonic_ns"] - ago_ms * MS
    return writer


ELSEWHERE = {"clock_identity": b"another machine"}


def test_the_age_of_a_heartbeat_is_reported(tmp_path: Path) -> None:
    beaten_writer(700).write(tmp_path)
    rank = seen(tmp_path)[1]
    assert rank.status == "running" and rank.beat_age_ms is not None and 700 <= rank.beat_age_ms < 60_000
    assert load_report(tmp_path).ranks[0].beat_age_ms is not None
    own_writer(os.getpid()).write(tmp_path)
    assert seen(tmp_path)[1].beat_age_ms is None
    beaten_writer(700, closed=1).write(tmp_path)
    assert seen(tmp_path)[1].beat_age_ms is None


@pytest.mark.parametrize("beat", [-1, 2**62])
def test_a_heartbeat_that_cannot_be_right_is_none(tmp_path: Path, beat: int) -> None:
    writer = own_writer(os.getpid())
    writer.header["heartbeat_ns"] = beat
    writer.write(tmp_path)
    assert open_run(tmp_path).ranks[0].header.heartbeat_ns == 0


def test_a_process_of_another_container_that_beats_runs(tmp_path: Path) -> None:
    writer = beaten_writer(100)
    writer.sidecar["process_namespace"] = "pid:[1]"
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "running"
    assert open_ms(tmp_path) >= AGO_MS
    writer.header["heartbeat_ns"] -= 10_000 * MS
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "unknown"


@pytest.mark.parametrize("behind_ms", [-20_000, 0, 20_000])
def test_a_process_of_another_machine_that_beats_runs(tmp_path: Path, behind_ms: int) -> None:
    """Its wall clock is not quite ours; its own clock tells how long it has been silent."""
    writer = beaten_writer(1_000, wall_ago_ms=behind_ms, **ELSEWHERE)
    writer.write(tmp_path)
    now, rank = seen(tmp_path)
    assert (rank.status, now.is_live) == ("running", True)
    newest = int(writer.records[0]["times"].max())
    assert rank.silent_ms == pytest.approx((writer.header["heartbeat_ns"] - newest) / 1e6)
    assert open_ms(tmp_path) == pytest.approx(rank.silent_ms + 5)


@pytest.mark.parametrize("header", [{"closed": 1}, {"heartbeat_ns": 0}])
def test_a_closed_trace_or_one_without_a_heartbeat_tells_nothing_from_afar(
    tmp_path: Path, header: dict[str, int]
) -> None:
    writer = beaten_writer(1_000, **ELSEWHERE)
    writer.header |= header
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "unknown"


def test_an_old_trace_of_another_machine_is_not_alive(tmp_path: Path) -> None:
    beaten_writer(1_000, wall_ago_ms=3_600_000, **ELSEWHERE).write(tmp_path)
    now, rank = seen(tmp_path)
    assert (rank.status, rank.silent_ms, now.is_live) == ("unknown", None, False)
    assert rank.beat_age_ms == pytest.approx(3_601_000, abs=60_000)


def test_a_process_that_ends_in_good_order_while_it_is_read_does_not_look_dead(
    tmp_path: Path, process: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen alive before its records are read: that it is gone afterwards says nothing about them."""
    own_writer(process.pid).write(tmp_path)
    run = open_run(tmp_path)
    process.kill()
    process.wait(20)
    assert observe(run).ranks[0].status == "running"


def test_an_abandoned_operation_is_not_waited_for(tmp_path: Path) -> None:
    writer = own_writer(os.getpid())
    newest = int(writer.records[0]["times"].max())
    writer.bucket(1, newest - 4 * MS, newest, 0, flags=64)
    writer.write(tmp_path)
    running, abandoned = load_report(tmp_path).in_flight_operations
    assert running.open_ms >= AGO_MS
    assert (abandoned.abandoned, abandoned.open_ms) == (True, 4.0)


def test_a_trace_before_the_machines_start_is_of_another_clock_where_the_identity_names_no_boot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on Windows, where the identity is the machine's and the counter restarts with each start."""
    monkeypatch.setattr(now, "linux_identity", lambda: "")
    for place in (now, machine_clock):
        monkeypatch.setattr(place, "clock_identity", lambda: "a machine")
    writer = own_writer(os.getpid())
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "running"
    writer.header["wall_ns"] = int((psutil.boot_time() - 5) * 1e9)
    writer.write(tmp_path)
    assert seen(tmp_path)[1].status == "unknown"


def test_the_identity_of_a_windows_machine_is_what_the_recorder_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """csrc/platform/windows.cpp: MachineGuid of the 64-bit registry, a slash, the computer's name."""
    asked: list[tuple[object, ...]] = []

    def open_key(*arguments: object) -> nullcontext[str]:
        asked.append(arguments)
        return nullcontext("key")

    def query(key: str, name: str) -> tuple[str, int]:
        asked.append((key, name))
        return "0f7e-guid", 1

    def computer_name(text: ctypes.Array[ctypes.c_char], size: object) -> int:
        assert size is not None
        text.value = b"BOX"
        return 1

    registry = SimpleNamespace(
        KEY_READ=1, KEY_WOW64_64KEY=256, HKEY_LOCAL_MACHINE=7, OpenKey=open_key, QueryValueEx=query
    )
    assert machine_clock._windows_identity() == "" or sys.platform == "win32"
    monkeypatch.setitem(sys.modules, "winreg", registry)
    kernel = SimpleNamespace(GetComputerNameA=computer_name)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    assert machine_clock._windows_identity() == "0f7e-guid/BOX"
    assert asked == [(7, r"SOFTWARE\Microsoft\Cryptography", 0, 257), ("key", "MachineGuid")]


def test_glance_asks_for_no_process_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module.processes, "find", lambda pid: asked.append(pid))
    RankWriter(pid=1).write(tmp_path)
    assert seen(tmp_path)[1].status == "unknown" and asked == []


def test_no_process_has_a_number_that_no_system_gives() -> None:
    assert processes.find(2**63) is None
    assert processes.find(2**31 - 1) is None
    own = processes.find(os.getpid())
    assert own is not None and not own.stopped and own.started_s == processes.started_at()
