"""Whether the main thread waits for a disk at this moment, as far as the system says so (Linux)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_STATE: Final = b"D"
"""Sleeps and cannot be woken: the kernel reads or writes for it on a disk or a network file system. proc_pid_stat(5).

A thread that faults a page in from a file is in it, too, but holds the interpreter lock then, so that nobody looks.
"""

_ENOUGH: Final = 512
"""Bytes of the line; the state stands behind the command's name, which has at most 16."""


class DiskWait:
    """Reads the main thread's state. Kept open: to open the file costs more than to read it."""

    def __init__(self) -> None:
        self._file = -1
        with suppress(OSError):
            # Its state is that of the thread that the process began with. Python's own number of that thread is the
            # parent's after a fork.
            self._file = os.open("/proc/self/stat", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __call__(self) -> bool:
        """Whether it waits; False as well where nobody can tell."""
        if self._file < 0:
            return False
        try:
            os.lseek(self._file, 0, os.SEEK_SET)
            _, _, behind = os.read(self._file, _ENOUGH).rpartition(b") ")
        except OSError:
            return False
        return behind.startswith(_STATE)

    def close(self) -> None:
        """Closes the file; safe to call again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


__all__ = ["DiskWait"]
