"""All processes that a command started, wherever they hang in the tree of processes once their parents are gone."""

from __future__ import annotations

import ctypes
import os
import secrets
from contextlib import suppress
from types import TracebackType
from typing import Final

import psutil

from pyddpdiag import system

MARK: Final = "PYDDPDIAG_RUN_MARK"
"""The environment variable by which processes are found whose parents are gone."""

_PR_SET_CHILD_SUBREAPER: Final = 36


class Below:
    """The processes below a command that is started within the block.

    Where the system can do that, one whose parent ends becomes a child of this process meanwhile: it is found whatever
    it did to its environment. Elsewhere the mark in that finds it.
    """

    def __init__(self) -> None:
        mark = secrets.token_hex(8)
        self.environment = {MARK: mark}
        self._mark = mark
        self._before = set(_children())
        self._seen: set[psutil.Process] = set()

    def __enter__(self) -> Below:
        _take_orphans(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _take_orphans(False)

    def look(self) -> set[psutil.Process]:
        """Those that can be found by their parents, now or at an earlier look."""
        self._seen.update(set(_children()) - self._before)
        return self._seen

    def living(self) -> list[psutil.Process]:
        """All that still run. Looks at every process of the machine."""
        return [process for process in self.look() | set(_marked(self._mark)) if process.is_running()]

    def reap(self, command: int) -> None:
        """Takes the ends of adopted processes, which would stay as zombies, but not of the command, by its pid."""
        if not system.ADOPTS_ORPHANS:
            return
        known = {command, *(process.pid for process in self._before)}
        with suppress(ChildProcessError):
            while (end := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if end.si_pid in known:
                    return
                os.waitpid(end.si_pid, 0)


def _children() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.Error:
        return []


def _marked(mark: str) -> list[psutil.Process]:
    """All processes with this mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def _take_orphans(orphans: bool) -> None:
    if system.ADOPTS_ORPHANS:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)
