"""Threads of ours beside a script's own."""

from __future__ import annotations

import signal
import threading
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
