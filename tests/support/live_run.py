"""Written traces of processes that really live: to a reader a run of this machine, or of another."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from pyddpdiag.system import processes
from support import own_clock
from support.trace_writer import IN_FLIGHT, MS, RankWriter

STEPS = 12
STEP_MS = 100


@contextmanager
def waiting_processes(count: int) -> Iterator[list[psutil.Process]]:
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
        ranks: their processes.
        silent_ms: how old the newest records are.
        elsewhere: ranks of another host, whose clock and processes are not the reader's.
    """

    def __init__(
        self,
        folder: Path,
        ranks: list[psutil.Process],
        *,
        silent_ms: int = 60_000,
        elsewhere: frozenset[int] = frozenset(),
    ) -> None:
        self.folder = folder
        self.end = time.perf_counter_ns() - silent_ms * MS
        self.writers = [
            RankWriter(
                rank,
                len(ranks),
                pid=process.pid,
                closed=0,
                # Opened by a process that lived already: the trace is younger than it.
                monotonic_ns=time.perf_counter_ns(),
                wall_ns=time.time_ns(),
                clock_name=own_clock.NAME,
                clock_identity=b"another host" if rank in elsewhere else own_clock.IDENTITY,
            )
            for rank, process in enumerate(ranks)
        ]
        for rank, (writer, process) in enumerate(zip(self.writers, ranks, strict=True)):
            writer.sidecar |= {
                "host": "elsewhere" if rank in elsewhere else socket.gethostname(),
                "process_namespace": processes.namespace(),
                "process_started_s": process.create_time(),
            }
            for step in range(STEPS):
                now = self.at(step)
                writer.step(step, now, now, now + 60 * MS)
                writer.backward(step, now, now + 50 * MS, now + 53 * MS)
                writer.bucket(step, now + 45 * MS, now + 46 * MS, now + 52 * MS)

    def at(self, step: int) -> int:
        """When a step begins; the one after the last begins at the newest record."""
        return self.end - (STEPS - step) * STEP_MS * MS

    def wait(self, *ranks: int, flags: int = 0) -> None:
        """These ranks begin the next bucket and wait in it."""
        for rank in ranks:
            self.writers[rank].bucket(STEPS, self.end - MS, self.end, 0, state=IN_FLIGHT, flags=flags)

    def write(self, *, without: frozenset[int] = frozenset()) -> None:
        """Write the traces, except those of some ranks."""
        for writer in self.writers:
            if writer.rank not in without:
                writer.write(self.folder)
