"""Starts the ranks of one benchmark case, as trainings and sweeps start theirs; they live across all its rounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from pyddpdiag.ranks.launch import Node, launch
from pyddpdiag.ranks.session import Options, Session

TIMEOUT_S = 300


def run(job: Callable[..., Any], world_size: int, *arguments: Any) -> Any:
    """What `job(session, *arguments)` returned on rank 0; every rank runs it with the same arguments."""
    return launch(partial(_on_one_thread, job, arguments), Options(TIMEOUT_S), Node(world_size))


def _on_one_thread(job: Callable[..., Any], arguments: tuple[Any, ...], session: Session) -> Any:
    """The other ranks need the cores."""
    torch.set_num_threads(1)
    return job(session, *arguments)
