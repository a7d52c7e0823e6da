"""Threads of ours beside a script's own."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

_FAULTS: Final = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""What a thread does to itself."""

_BEGIN_S: Final = 5.0
"""So long, at most, the one that starts a thread waits for it to begin."""


class Startable(Protocol):
    """As `threading.Thread` is."""

    def start(self) -> None:
        """Starts it; RuntimeError: the system grants no further thread."""


class Unlisted:
    """A daemon thread that `threading` does not know: a script may count all that it lists, or join them.

    Args:
        name: for `names`.
        run: what it does; must not raise.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._name = name
        self._run = run
        self._runs = threading.Lock()  # held as long as it runs
        self._begins = threading.Lock()  # held until it has begun
        self._process = os.getpid()
        self.native_id = 0
        """As the system numbers it, once it has begun."""

    def start(self) -> None:
        """Starts it, and waits until it has begun: until then Python gives it the number of the one that starts it.

        Raises:
            RuntimeError: the system grants no further thread.
        """
        self._runs.acquire()
        self._begins.acquire()
        try:
            _thread.start_new_thread(self._begin, ())
        except BaseException:
            self._runs.release()
            raise
        # Python gives no thread a chance to begin once it has begun to end.
        if self._begins.acquire(timeout=_BEGIN_S):
            self._begins.release()

    def is_alive(self) -> bool:
        """Whether it runs. A forked process has no thread of its parent's."""
        return self._runs.locked() and os.getpid() == self._process

    def join(self, within_s: float) -> None:
        """Waits until it has ended, so long at most."""
        if self.is_alive() and self._runs.acquire(timeout=within_s):
            self._runs.release()

    def _begin(self) -> None:
        self.native_id = threading.get_native_id()
        ident = threading.get_ident()
        _names[ident] = self._name
        self._begins.release()
        try:
            self._run()
        finally:
            del _names[ident]
            self._runs.release()


_names: dict[int, str] = {}


def names() -> dict[int, str]:
    """Those of all Python threads, ours among them, by their numbers."""
    return {**_names.copy(), **{each.ident or 0: each.name for each in threading.enumerate()}}


def start_beside(thread: Startable) -> None:
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


def await_end(thread: Unlisted, within_s: float) -> None:
    """Waits until a thread that is about to end is gone, for the system, too: Linux lets go of it a moment later than
    Python does."""
    until = time.monotonic() + within_s
    thread.join(within_s)
    here = Path(f"/proc/self/task/{thread.native_id}")
    while here.exists() and time.monotonic() < until:
        time.sleep(0.0001)
