"""How much memory this process and those that it started take, and how much is left for them."""

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path
from typing import Final

import psutil

from pyddpdiag.model.memory import MOST, Memory
from pyddpdiag.record.control_groups import OWN, ROOT, counters, folders, text_of
from pyddpdiag.system.clock import monotonic_ns

FIRST_NS: Final = 250_000_000
"""Between two readings at first."""
COST_TIMES: Final = 500
"""A reading takes 0.2 ms, and 1 ms more for each worker; so many times as long it waits at least
until the next one."""


class MemoryLooks:
    """Reads it now and then. With `MOST` readings every second one is dropped, and the time between two doubles.

    Args:
        root: where the control groups are.
        own: names those of the process.
    """

    def __init__(self, root: Path = ROOT, own: Path = OWN) -> None:
        self._between_ns = FIRST_NS
        self._due_ns = 0
        self._rows: list[tuple[int, int, int, int]] = []
        limits = [(limit, folder) for folder in folders("memory", root, own) if (limit := _limit(folder))]
        self._limit, self._group = min(limits, default=(0, root))
        self._whole = 0
        self._process: psutil.Process | None = None

    def look(self) -> None:
        """Reads it, if it is time; never again once the system has refused. Never raises."""
        now = monotonic_ns()
        if now < self._due_ns:
            return
        used = time.thread_time_ns()
        try:
            self._rows.append((now, *self._read()))
        except (psutil.Error, OSError, ValueError, RuntimeError):
            self._due_ns = sys.maxsize
            return
        if len(self._rows) >= MOST:
            del self._rows[1::2]
            self._between_ns *= 2
        self._due_ns = now + max(self._between_ns, COST_TIMES * (time.thread_time_ns() - used))

    def _read(self) -> tuple[int, int, int]:
        """Bytes of this process, of those that it started, and left."""
        if self._process is None:
            self._process = psutil.Process()
        whole = psutil.virtual_memory()
        self._whole = whole.total
        left = (
            min(whole.available, max(0, self._limit - _used(self._group))) if self._limit else whole.available
        )
        return _private(self._process), sum(map(_of_child, _children())), left

    def kept(self) -> Memory:
        """All readings."""
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * 4
        at_ns, own, workers, free = map(tuple, columns)
        return Memory(at_ns, own, workers, free, self._limit or self._whole, bool(self._limit))


def _private(process: psutil.Process) -> int:
    """Resident bytes that are its own: neither files, such as a trace, nor memory that it shares with others."""
    found = process.memory_info()
    return int(max(0, found.rss - getattr(found, "shared", 0)))


def _children() -> list[int]:
    """Processes of multiprocessing that this one started, such as a loader's workers.

    `active_children` would wait for those that have ended, which is the script's to do.
    """
    known = getattr(multiprocessing.process, "_children", ())
    return [child.pid for child in list(known) if child.pid is not None]


def _of_child(pid: int) -> int:
    """What only this process has: a forked one shares its parent's pages until it writes to them, if only a count of
    references."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.Error:
        return 0


def _limit(folder: Path) -> int:
    """The limit of one control group in bytes; 0: none. Version 1 writes a number that no machine has for that."""
    text = text_of(folder / "memory.max") or text_of(folder / "memory.limit_in_bytes")
    return int(text) if text.isdecimal() and int(text) < 2**60 else 0


def _used(folder: Path) -> int:
    """What the group takes, without the files that it would drop."""
    text = text_of(folder / "memory.current") or text_of(folder / "memory.usage_in_bytes")
    stat = counters(folder / "memory.stat")
    files = sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in ("inactive_file", "active_file"))
    return max(0, int(text) - files) if text.isdecimal() else 0
