"""Starts the ranks of one benchmark case; they live across all its rounds."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT_S = 900


def run(job: Callable[..., Any], world_size: int, *arguments: Any) -> Any:
    """What `job(rank, world_size, meeting, *arguments)` returned on rank 0; processes are spawned."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, context.Pool(world_size, _use_loopback) as pool:
        meeting = str(Path(folder, "meeting"))
        waiting = [
            pool.apply_async(job, (rank, world_size, meeting, *arguments)) for rank in range(world_size)
        ]
        answers = [one.get(TIMEOUT_S) for one in waiting]
        return answers[0]


def join(rank: int, world_size: int, meeting: str) -> None:
    """Makes this process a rank, on one thread: the others need the cores."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=Path(meeting).as_uri(),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=300),
    )


def _use_loopback() -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
