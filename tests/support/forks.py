"""Starts processes quickly where the system can: torch is imported once, in their common parent."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerContext, SpawnContext

PRELOADED = (
    "__main__",
    "pytest",
    "torch",
    "torch.distributed",
    "pyddpdiag",
    "pyddpdiag._native",
    "support.ranks",
)
"""What nearly every process of a test imports. It starts no thread, which a fork would lose."""


def context() -> ForkServerContext | SpawnContext:
    """Where there is no fork server, as on Windows, each process imports torch itself."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(list(PRELOADED))
    return forks


def take_environment(variables: dict[str, str]) -> None:
    """Gives a process the variables of the test that started it: a fork has those of the first test."""
    os.environ.clear()
    os.environ.update(variables)
