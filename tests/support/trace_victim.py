"""A process that writes a trace through the native recorder as fast as it can, until somebody kills it."""

import math
import threading
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from support.forks import context

WRITERS = 3
STEPS = WRITERS  # index of the step loop's count, after those of the threads
STOP = WRITERS + 1
NAMES = tuple(f"gloo:writer_{number}" for number in range(WRITERS))


class Counts:
    """Numbers in a file that two processes map: they outlive the process that counted."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8 * (WRITERS + 2)))
        self.numbers: np.ndarray[Any, np.dtype[np.uint64]] = np.memmap(path, np.uint64, "r+")

    def written(self) -> list[int]:
        """Finished records by writer; the step loop's last."""
        return [int(number) for number in self.numbers[: WRITERS + 1]]

    def stop(self) -> None:
        """Asks the writers to end."""
        self.numbers[STOP] = 1


def write(path: str, capacity_bytes: int, counts_path: str, most_steps: float) -> None:
    """Writes step records in this thread and collectives in three more; counts each one that it has finished.

    A profiler's range whose name begins as Gloo's do is a collective to the worker probe: a way to write
    records from any thread without a process group.
    """
    import torch

    from pyddpdiag import _native

    counts = Counts(Path(counts_path)).numbers
    recorder = _native.Recorder(
        path=path,
        rank=0,
        world_size=1,
        run_id=b"v" * 16,
        capacity_bytes=capacity_bytes,
        overwrite=False,
        parameter_interval=0,
        statistics_interval=0,
        parameter_statistics=False,
        sentinel_interval=0,
        sample_connections=False,
        weights_interval=0,
    )

    def collectives(number: int) -> None:
        while not counts[STOP]:
            with torch.profiler.record_function(NAMES[number]):
                pass
            counts[number] += 1

    threads = [threading.Thread(target=collectives, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    while not counts[STOP] and counts[STEPS] < most_steps:
        recorder.wait_begin()
        recorder.step_begin()
        recorder.step_end()
        counts[STEPS] += 1
        # Gives the lock away: this loop alone would fill the ring.
        time.sleep(0)
    for thread in threads:
        thread.join()
    # Wait to be killed, so that the trace is left as it was.
    threading.Event().wait()


def start(
    folder: Path, capacity_bytes: int, most_steps: float = math.inf
) -> tuple[BaseProcess, Path, Counts]:
    """A process that writes `folder/rank_0.ddptrace`; returns when every writer has finished some records."""
    path, counts_path = folder / "rank_0.ddptrace", folder / "counts"
    counts = Counts(counts_path)
    process = context().Process(
        target=write, args=(str(path), capacity_bytes, str(counts_path), most_steps), daemon=True
    )
    process.start()
    deadline = time.monotonic() + 100
    while min(counts.written()) < 3:
        if not process.is_alive() or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"the writer did not begin: {counts.written()}, exit code {process.exitcode}")
        time.sleep(0.001)
    return process, path, counts
