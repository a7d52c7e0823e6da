"""Who is who: this machine, this process, and whether a process seen earlier still lives."""

from __future__ import annotations

import os
import socket

import psutil

from pyddpdiag.train.system import process_namespace

# psutil derives the start time from the boot time, which moves a little when the wall clock is set.
_START_TOLERANCE_S = 2.0


def machine() -> str:
    """A name for the processes that this one can see; differs between containers of one machine."""
    return f"{socket.gethostname()} {process_namespace()}".strip()


def started_at(pid: int | None = None) -> float:
    """When a process (default: this one) was started, in seconds since 1970."""
    return psutil.Process(os.getpid() if pid is None else pid).create_time()


def is_alive(pid: int, started: float) -> bool:
    """Whether the process of this machine that had `pid` and was started at `started` still runs."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(process.create_time() - started) <= _START_TOLERANCE_S
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
