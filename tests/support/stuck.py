"""Ranks of a real training that go on until they are asked, or left, to get stuck; the test looks on from outside."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from support.forks import context, take_environment

START_S = 120
FIRST_STEPS = 6
STEP_S = 0.02


@dataclass(frozen=True)
class Ranks:
    """Running ranks: their processes by rank, and the folder that they record into."""

    processes: tuple[BaseProcess, ...]
    folder: Path

    def process(self, rank: int) -> psutil.Process:
        """The process of a rank."""
        return psutil.Process(self.processes[rank].pid)


@contextmanager
def training(
    folder: Path, world_size: int, how: str = "goes_on", victim: int = 1, watchdog_s: float | None = None
) -> Iterator[Ranks]:
    """Ranks that train, all past their first steps. No process is left behind.

    Args:
        folder: for the trace and the meeting.
        world_size: ranks.
        how: `goes_on`: for ever. `sleeps`: the victim sleeps in its own code. `skips`: the victim leaves out a barrier.
            `ends`: all close their recorders after the first steps, and wait. `dies`: the victim exits with an error.
        victim: which rank.
        watchdog_s: of the recorders, which then write to `stderr_<rank>` in the run's folder: rank 0 in UTF-8, others
            in a code page of Windows.
    """
    run = folder / "run"
    run.mkdir(parents=True)
    processes = []
    for rank in range(world_size):
        arguments = (
            *(rank, world_size, str(folder / "meeting"), str(run), how, victim, watchdog_s),
            dict(os.environ),
        )
        process = context().Process(target=_train, args=arguments, daemon=True)
        process.start()
        processes.append(process)
    try:
        marks = [run / f"past_{rank}" for rank in range(world_size)]
        wait_for(lambda: all(mark.exists() for mark in marks), START_S, processes)
        yield Ranks(tuple(processes), run)
    finally:
        for process in processes:
            process.kill()
            process.join()


def wait_for(
    condition: Callable[[], Any], timeout_s: float, processes: list[BaseProcess] | None = None
) -> None:
    """Polls a condition; fails if it does not come true in time, or a process ends meanwhile with an error."""
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, f"not within {timeout_s} s"
        assert not any(process.exitcode for process in processes or ()), "a rank ended early"
        time.sleep(0.02)


def oversleep() -> None:
    """Where the victim that sleeps is to be found."""
    time.sleep(1000)


def _train(
    rank: int,
    world_size: int,
    meeting: str,
    folder: str,
    how: str,
    victim: int,
    watchdog_s: float | None,
    variables: dict[str, str],
) -> None:
    take_environment(variables)
    if watchdog_s is not None:
        encoding = "cp1252" if rank else "utf-8"
        sys.stderr = (Path(folder) / f"stderr_{rank}").open("w", encoding=encoding, buffering=1)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import pyddpdiag
    from support.hooked import backward
    from support.models import branches

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=Path(meeting).as_uri(),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=600),
    )
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    recorder = pyddpdiag.Recorder(folder, watchdog_s=watchdog_s)
    recorder.attach(ddp)
    mine = rank == victim
    for step in recorder.steps(itertools.count()):
        if step == FIRST_STEPS:
            (Path(folder) / f"past_{rank}").touch()
            if how == "ends":
                break
            if how == "sleeps" and mine:
                oversleep()
            if how == "dies" and mine:
                os._exit(3)
        backward(ddp, rank, step)
        if not (how == "skips" and mine and step == FIRST_STEPS):
            dist.barrier()
        time.sleep(STEP_S)
    recorder.close()
    time.sleep(1000)
