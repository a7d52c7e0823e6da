"""Runs a function in every rank of a real Gloo process group, each rank a spawned process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 100


def run_ranks(
    job: Callable[..., Any],
    world_size: int,
    folder: Path,
    *arguments: Any,
    group_timeout_s: float = 60,
    lost: frozenset[int] = frozenset(),
) -> list[Any]:
    """What `job(rank, world_size, *arguments)` returned in each rank.

    `job` must be importable. Ranks in `lost` are expected to die without an answer; theirs is None. Fails the
    test with the traceback of any other rank that fails, and after TIMEOUT_S; no process is left behind.
    """
    context = multiprocessing.get_context("spawn")
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    pipes, processes = [], []
    for rank in range(world_size):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_rank, args=(theirs, job, rank, world_size, str(meeting), group_timeout_s, arguments)
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    deadline = time.monotonic() + TIMEOUT_S
    answers: list[Any] = []
    try:
        for rank, pipe in enumerate(pipes):
            try:
                if not pipe.poll(max(0.0, deadline - time.monotonic())):
                    pytest.fail(f"rank {rank} gave no answer in {TIMEOUT_S} s")
                kind, answer = pipe.recv()
            except EOFError:
                kind, answer = "lost", None
            if kind == "failed":
                pytest.fail(f"rank {rank} failed:\n{answer}")
            if (kind == "lost") != (rank in lost):
                pytest.fail(f"rank {rank} {'died without an answer' if kind == 'lost' else 'did not die'}")
            answers.append(answer)
        for rank, process in enumerate(processes):
            process.join(max(0.1, deadline - time.monotonic()))
            if process.exitcode != 0 and rank not in lost:
                pytest.fail(f"rank {rank} answered, but its process ended with {process.exitcode}")
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
    return answers


def _rank(
    pipe: Any,
    job: Callable[..., Any],
    rank: int,
    world_size: int,
    meeting: str,
    timeout_s: float,
    arguments: Any,
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=Path(meeting).as_uri(),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout_s),
        )
        answer = ("done", job(rank, world_size, *arguments))
        # What lives on in cycles holds the process group, whose end waits for its workers: without it a worker that
        # is late, on a busy machine, aborts the process as it ends.
        gc.collect()
        dist.destroy_process_group()
    except BaseException:
        answer = ("failed", traceback.format_exc())
    pipe.send(answer)
    pipe.close()
