"""Ctrl-C and similar signals, for a launcher that must end its ranks, and for a rank stuck in native code."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

from pyddpdiag.output import say


class StopRequest:
    """The signal that asked this process to stop, 0 as long as none did."""

    def __init__(self) -> None:
        self.signal_number = 0


def stop_signals() -> list[signal.Signals]:
    """The signals that ask a process to stop, except those that it ignores: nohup and background shells see to that."""
    # SIGHUP is missing on Windows, SIGBREAK everywhere else.
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    found = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in found if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def noted() -> Iterator[StopRequest]:
    """Within the block, signals to stop are noted and raise nothing; the caller polls the request.

    Only the main thread may handle signals; in another one, nothing is noted.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        request.signal_number = request.signal_number or number

    before = {number: signal.signal(number, note) for number in stop_signals()}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def held_back() -> Iterator[None]:
    """Within the block SIGINT is blocked, also in the processes that are started there.

    So a Ctrl-C that reaches the whole process group cannot hit a rank that is still starting up, which would
    print a traceback. Windows has no such mask: there the ranks ignore Ctrl-C as soon as they run our code.
    """
    if hasattr(signal, "pthread_sigmask"):
        from multiprocessing import resource_tracker

        # Starting the first process starts this helper of multiprocessing, which would unblock SIGINT again.
        resource_tracker.ensure_running()
    with blocked({signal.SIGINT}):
        yield


@contextmanager
def blocked(numbers: Collection[int]) -> Iterator[None]:
    """Within the block these signals wait, in this thread and the processes that it starts. Not on Windows."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait_for_signal(numbers: Collection[int], seconds: float) -> tuple[int, int] | None:
    """Takes one of these blocked signals: its number and `si_code`; None: none came in time. Not on Windows.

    In a process that was stopped for longer than `seconds`, `signal.sigtimedwait` returns numbers that nobody set. And
    only a thread that waits in the system gets a signal before others that do not block it.
    """
    libc = ctypes.CDLL(None)
    awaited = (ctypes.c_ulong * 16)()
    libc.sigemptyset(awaited)
    for number in numbers:
        libc.sigaddset(awaited, int(number))
    whole = int(seconds)
    limit = (ctypes.c_long * 2)(whole, int((seconds - whole) * 1e9))
    info = (ctypes.c_int * 32)()  # siginfo_t: number, errno, code
    return (info[0], info[2]) if libc.sigtimedwait(awaited, info, limit) > 0 else None


def leave_to_launcher() -> None:
    """In a launched rank: ignore Ctrl-C, which the launcher handles for all ranks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def exit_at_once(message: str) -> Iterator[None]:
    """Within the block, Ctrl-C prints `message` and ends the process with exit code 130.

    Python runs its handlers only when the main thread returns from native code, which a rank that waits for
    its peers inside Gloo does not. The C handler itself writes to the wake-up descriptor, and a thread reads
    it here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def watch() -> None:
        while True:
            try:
                numbers = reader.recv(16)
            except OSError:
                return
            if not numbers:
                return
            if signal.SIGINT in numbers:
                say(message, sys.stderr)
                sys.stderr.flush()
                os._exit(130)

    before_handler = signal.signal(signal.SIGINT, lambda number, frame: None)
    before_descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, name="pyddpdiag-interrupt", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before_descriptor)
        signal.signal(signal.SIGINT, before_handler if before_handler is not None else signal.SIG_DFL)
        writer.close()


@contextmanager
def deadline(seconds: float, on_expiry: Callable[[], None]) -> Iterator[None]:
    """Calls `on_expiry` from another thread unless the block ends within `seconds`.

    Waits inside torch or Gloo cannot be interrupted from Python, so `on_expiry` is expected to end the
    process.
    """
    timer = threading.Timer(seconds, on_expiry)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
