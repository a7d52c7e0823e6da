"""Starts processes quickly where the system can: torch is imported once, in their common parent."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Windows has no such class.
    from multiprocessing.context import ForkServerContext, SpawnContext

PRELOADED = ("__main__", "pytest", "torch", "torch.distributed", "torch._dynamo")
"""What nearly every process of a test imports; torch._dynamo is for DDP, whose constructor imports it.

Not the package: the fork server of Python 3.11 does not take over the tests' sys.path, and would prefer the tree's
package to an installed one. The one thread that these imports start is OpenBLAS's, which takes care of forks itself.
"""


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
