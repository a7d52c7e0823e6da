"""Starts the ranks of one benchmark case; they live across all its rounds."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def _use_loopback() -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
