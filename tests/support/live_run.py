"""Written traces of processes that really live: to a reader a run of this machine, or of another."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from pyddpdiag.model.report import RunReport
from pyddpdiag.system.processes import find, namespace
from support import own_clock
from support.reported import report_of
from support.trace_writer import IN_FLIGHT, MS, RankWriter

STEPS = 12
STEP_MS = 100


@contextmanager
def _waiting(count: int) -> Iterator[list[psutil.Process]]:
    """Processes that only wait; ended at the end."""
    children = [
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(count)
    ]
    try:
        yield [psutil.Process(child.pid) for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()


class LiveRun:
    """A run of some ranks on this machine whose newest records are so old.

    Args:
        folder: where to write.
        processes: theirs.
        silent_ms: how old the newest records are.
        elsewhere: ranks of another host, whose clock and processes are not the reader's.
    """

    def __init__(
        self,
        folder: Path,
        processes: list[psutil.Process],
        *,
        silent_ms: int = 60_000,
        elsewhere: frozenset[int] = frozenset(),
    ) -> None:
        self.folder, self.processes = folder, processes
        self.end = time.perf_counter_ns() - silent_ms * MS
        self.writers = [
            RankWriter(
                rank,
                len(processes),
                pid=process.pid,
                closed=0,
                # Opened by a process that lived already: the trace is younger than it.
                monotonic_ns=time.perf_counter_ns(),
                wall_ns=time.time_ns(),
                clock_name=own_clock.NAME,
                clock_identity=b"another host" if rank in elsewhere else own_clock.IDENTITY,
            )
            for rank, process in enumerate(processes)
        ]
        for rank, (writer, process) in enumerate(zip(self.writers, processes, strict=True)):
            writer.sidecar |= {
                "host": "elsewhere" if rank in elsewhere else socket.gethostname(),
                "process_namespace": namespace(),
                "process_started_s": process.create_time(),
            }
            writer.sound_steps(range(STEPS), self.at(0))

    def at(self, step: int) -> int:
        """When a step begins; the one after the last begins at the newest record."""
        return self.end - (STEPS - step) * STEP_MS * MS

    def wait(self, *ranks: int, flags: int = 0) -> None:
        """These ranks begin the next bucket and wait in it."""
        for rank in ranks:
            self.writers[rank].bucket(STEPS, self.end - MS, self.end, 0, state=IN_FLIGHT, flags=flags)

    def write(self) -> None:
        """Write the traces."""
        for writer in self.writers:
            writer.write(self.folder)

    def report(self) -> RunReport:
        """Write the traces; the report on them."""
        return report_of(self.writers, self.folder)

    def kill(self, *ranks: int) -> None:
        """End the processes of these ranks, or of all."""
        for rank in ranks or range(len(self.processes)):
            self.processes[rank].kill()
            deadline = time.monotonic() + 20
            while find(self.processes[rank].pid) is not None:
                assert time.monotonic() < deadline
                time.sleep(0.01)


Live = Callable[..., LiveRun]


def live_runs() -> Any:
    """A fixture: `live(3, ...)` is a LiveRun in the test's folder, of three processes that wait until the test ends."""

    @pytest.fixture
    def live(tmp_path: Path) -> Iterator[Live]:
        with ExitStack() as stack:
            yield lambda count, **options: LiveRun(tmp_path, stack.enter_context(_waiting(count)), **options)

    return live
