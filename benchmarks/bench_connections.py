"""What the recorder's own thread costs: heartbeat and readings of the process's TCP connections.

Run: python3 dev.py bench benchmarks/bench_connections.py
A round is the processor time of that thread, as Linux counts it, divided by its beats (two a second), over a few
seconds in which every connection carries something between two beats, so that each has a record written.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch.distributed as dist
from harness.row import Row

import pyddpdiag

BEATS = 6
BEAT_S = 0.5
ROUNDS = 3
NAME = "ddpdiag-pulse"
GOAL_S = 0.005
"""A hundredth of the time between two beats."""

TASKS = Path("/proc/self/task")


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of this process alone."""
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _used_s() -> float:
    """Processor time of the recorder's thread so far."""
    [task] = [task for task in TASKS.iterdir() if (task / "comm").read_text().strip() == NAME]
    return int((task / "schedstat").read_text().split()[0]) / 1e9


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux tells the processor time of one thread here")
@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("connections", [0, 16, 128])
def test_beat(row: Row, tmp_path: Path, connections: int) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        pairs = []
        # Each is two of this process's connections: one end, and the other.
        for _ in range(connections // 2):
            ours = stack.enter_context(socket.create_connection(listener.getsockname()))
            pairs.append((ours, stack.enter_context(listener.accept()[0])))
        recorder = stack.enter_context(pyddpdiag.Recorder(tmp_path / "run"))
        seconds = []
        for _ in range(row.rounds(ROUNDS)):
            before = _used_s()
            for _ in range(BEATS):
                for ours, theirs in pairs:
                    ours.send(b"x" * 100)
                    theirs.recv(100)
                time.sleep(BEAT_S)
            seconds.append((_used_s() - before) / BEATS)
        tickets = recorder.counters()["tickets"]
    row.report("processor time of a heartbeat", seconds, connections=connections, records=tickets)
    assert tickets >= connections
    assert not row.judges(ROUNDS) or min(seconds) < GOAL_S
