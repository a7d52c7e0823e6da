"""The recorder's own thread in real ranks: its readings of their connections, its heartbeat and its end."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from support.ranks import ran_once, run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.analyse.view import RunView
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.run import open_run

STEPS = 12
WIDTH = 512
NAME = "ddpdiag-pulse"[:15]


def threads_named_ours() -> int:
    """How many threads of this process are a recorder's."""
    tasks = Path("/proc/self/task")
    return (
        sum((task / "comm").read_text().strip() == NAME for task in tasks.iterdir()) if tasks.exists() else -1
    )


def train(folder: str, **options: Any) -> pyddpdiag.Recorder:
    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
    recorder = pyddpdiag.Recorder(folder, **options)
    recorder.attach(ddp)
    for batch in recorder.steps([torch.ones(2, WIDTH)] * STEPS):
        ddp(batch).mean().backward()
    return recorder


def _measured(rank: int, world_size: int, folder: str) -> dict[str, Any]:
    recorder = train(f"{folder}/on")
    during = threads_named_ours()
    recorder.close()
    after = threads_named_ours()
    closed = recorder.counters()["tickets"]
    train(f"{folder}/off", sample_connections=False).close()
    paused = pyddpdiag.Recorder(f"{folder}/paused")
    paused.pause()
    # A reading that had begun before may still be filed; it is once the next beat has come.
    _wait_for_a_beat(paused.path)
    before = paused.counters()["tickets"]
    went_on = _wait_for_a_beat(paused.path)
    silent = paused.counters()["tickets"] == before
    paused.close()
    dist.barrier()
    return {
        "threads": (during, after),
        "closed": recorder.counters()["tickets"] == closed,
        "paused": (went_on, silent),
    }


def _wait_for_a_beat(path: Path) -> bool:
    """Whether the recorder's thread beat within half a minute."""
    last = _beat(path)
    deadline = time.monotonic() + 30
    while _beat(path) == last and time.monotonic() < deadline:
        time.sleep(0.05)
    return _beat(path) > last


def _beat(path: Path) -> int:
    with path.open("rb") as file:
        file.seek(576)
        return int.from_bytes(file.read(8), "little")


measured = ran_once(_measured, 2)


def test_the_links_of_a_training_carry_its_gradients(measured: tuple[Path, list[dict[str, Any]]]) -> None:
    report = load_report(measured[0] / "on")
    links = [link for link in report.links if link.bytes]
    if not links:
        pytest.skip("this system tells nothing of a connection")
    gradients = 4 * (WIDTH * WIDTH + WIDTH) * STEPS
    assert [(link.rank, link.peer) for link in links] == [(0, 1), (1, 0)]
    for link in links:
        assert link.loopback
        # Of two ranks each sends as much as there is to average; DDP sends the parameters at the start.
        assert link.bytes is not None and 0.7 * gradients <= link.bytes <= 1.3 * gradients
        assert link.interface and link.interface == link.peer_interface


def test_the_last_reading_comes_when_it_is_closed(measured: tuple[Path, list[dict[str, Any]]]) -> None:
    for trace in open_run(measured[0] / "on").ranks:
        records = trace.of_kind(Kind.CONNECTION)
        assert len(records)
        readings = records[records["flags"] == 0]
        assert int(readings["times"][:, 0].max()) >= int(trace.of_kind(Kind.STEP)["times"][:, 2].max())
        assert trace.header.heartbeat_ns >= int(readings["times"][:, 0].max())


def test_the_thread_lives_as_long_as_the_recorder(measured: tuple[Path, list[dict[str, Any]]]) -> None:
    for answer in measured[1]:
        assert answer["closed"]
        assert answer["threads"] in ((1, 0), (-1, -1))


def test_connections_are_not_read_where_that_is_not_wanted(
    measured: tuple[Path, list[dict[str, Any]]],
) -> None:
    view = RunView(open_run(measured[0] / "off"))
    assert view.connections == () and view.links == ()
    assert all(header.heartbeat_ns > header.monotonic_ns for header in view.headers)


def test_a_paused_recorder_beats_and_writes_nothing(measured: tuple[Path, list[dict[str, Any]]]) -> None:
    assert [answer["paused"] for answer in measured[1]] == [(True, True)] * 2


def test_the_sidecar_tells_the_interfaces(measured: tuple[Path, list[dict[str, Any]]]) -> None:
    for trace in open_run(measured[0] / "on").ranks:
        assert set(trace.sidecar.interfaces) <= set(psutil.net_if_addrs())
        assert any("127.0.0.1/8" in each.addresses for each in trace.sidecar.interfaces.values())


_kept: list[pyddpdiag.Recorder] = []


def _left_open(rank: int, world_size: int, folder: str) -> None:
    _kept.append(train(folder))


def test_a_recorder_that_is_never_closed_does_not_keep_its_process(tmp_path: Path) -> None:
    # run_ranks fails if a process does not end, or ends badly.
    run_ranks(_left_open, 2, tmp_path, str(tmp_path / "run"))
    assert all(not header.closed for header in RunView(open_run(tmp_path / "run")).headers)


def _killed(rank: int, world_size: int, folder: str) -> None:
    recorder = train(folder)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    recorder.close()


def test_a_killed_rank_leaves_its_readings_and_their_names(tmp_path: Path) -> None:
    run_ranks(_killed, 2, tmp_path, str(tmp_path / "run"), lost=frozenset({1}))
    view = RunView(open_run(tmp_path / "run"))
    killed = [each for each in view.connections if each.rank == 1]
    if not killed:
        pytest.skip("this system tells nothing of a connection")
    assert {(link.rank, link.peer) for link in view.links} == {(0, 1), (1, 0)}
