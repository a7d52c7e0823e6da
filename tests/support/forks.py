"""Starts processes quickly where the system can: what they import is imported once, in their common parent."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Windows has no such class.
    from multiprocessing.context import ForkServerContext, SpawnContext

PATH = "PYTHONPATH"


def context() -> ForkServerContext | SpawnContext:
    """Where there is no fork server, as on Windows, each process imports torch itself."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    from multiprocessing.forkserver import ensure_running

    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["__main__", "support.preloaded"])
    # The fork server of Python 3.11 does not take over sys.path: it would find neither the tests' modules nor, where
    # one is installed, the package that they test.
    before = os.environ.get(PATH)
    os.environ[PATH] = os.pathsep.join(filter(None, sys.path))
    try:
        ensure_running()
    finally:
        if before is None:
            del os.environ[PATH]
        else:
            os.environ[PATH] = before
    return forks


def take_environment(variables: dict[str, str]) -> None:
    """Gives a process the variables of the test that started it: a fork has those of the first test."""
    os.environ.clear()
    os.environ.update(variables)
