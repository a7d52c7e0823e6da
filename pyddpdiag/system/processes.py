"""Processes of this machine: which one this is, and whether one seen earlier is still alive."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

START_TOLERANCE_S: Final = 2.0
"""psutil derives the start time from the boot time, which moves a little when the wall clock is set."""


@dataclass(frozen=True)
class Process:
    """A process that exists. `started_s`: seconds since 1970, None if the system does not reveal it.

    `stopped`: something keeps it from running (SIGSTOP, a debugger, a suspended process on Windows).
    """

    pid: int
    started_s: float | None
    stopped: bool


def namespace() -> str:
    """A name that differs between containers of one machine that cannot see each other's processes, or ""."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def started_at(pid: int | None = None) -> float:
    """When a process (default: this one) was started, in seconds since 1970."""
    return psutil.Process(os.getpid() if pid is None else pid).create_time()


def find(pid: int) -> Process | None:
    """The process that has this pid now; None if there is none, or it ended but was not reaped yet."""
    try:
        process = psutil.Process(pid)
        status = process.status()
        started: float | None = process.create_time()
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return None
    except psutil.AccessDenied:
        return Process(pid, None, stopped=False)
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return None
    return Process(pid, started, status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP))


def is_alive(pid: int, started: float) -> bool:
    """Whether the process of this machine that had `pid` and was started at `started` still runs."""
    process = find(pid)
    if process is None:
        return False
    return process.started_s is None or abs(process.started_s - started) <= START_TOLERANCE_S
