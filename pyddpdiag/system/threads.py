"""Threads of ours beside a script's own."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Final

_FAULTS: Final = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""What a thread does to itself."""


def start_beside(thread: threading.Thread) -> None:
    """Starts a thread that leaves the process's signals to the script's own ones, from its first instruction on.

    A script may block a signal and wait for it, as for Slurm's warning before the time limit: a thread that takes it
    would end the process. Faults still reach their handlers. Windows sends no signals to threads.

    Raises:
        RuntimeError: the system grants no further thread.
    """
    if not hasattr(signal, "pthread_sigmask"):
        thread.start()
        return
    # Asked first: a handler may raise within any of these calls, and what was blocked must not stay so.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    faults = {getattr(signal, name) for name in _FAULTS}
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def await_end(thread: threading.Thread, within_s: float) -> None:
    """Waits until a thread that is about to end is gone, for the system, too: Linux lets go of it a moment later than
    Python does."""
    until = time.monotonic() + within_s
    thread.join(within_s)
    here = Path(f"/proc/self/task/{thread.native_id}")
    while here.exists() and time.monotonic() < until:
        time.sleep(0.0001)
