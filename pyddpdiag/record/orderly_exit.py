"""The end of a process that used Gloo.

A Gloo worker drops a finished work a moment after it has announced the end, and with it the thread-local
state of the thread that began the work, which holds Python objects. If the worker is so late (on a busy
machine) that the interpreter is already shutting down, Python kills the worker when it asks for the GIL, and
that aborts the whole process ("terminate called without an active exception"). torch does not wait for its
workers; we do.
"""

from __future__ import annotations

import atexit
import os
import time
from collections import deque
from typing import Any, Final

from pyddpdiag.record.once import OncePerProcess

REST_S = 0.05
WAIT_S: Final = 5.0
"""How long the end of a process waits for other hooks' results: where another rank never comes, they do not, either."""

_MOST: Final = 1024
_arranged = OncePerProcess()
# What other hooks have begun. Their futures may run Python on a worker, and only they know what was begun for them.
_begun: deque[Any] = deque(maxlen=_MOST)


def arrange() -> None:
    """Lets the workers finish before the interpreter ends. Takes effect once per process, however often it is
    called."""
    if _arranged.first_time():
        atexit.register(_rest, os.getpid())


def await_at_exit(future: Any) -> None:
    """Lets the end of the process wait for another hook's future, if a pass that failed has left it alone."""
    while _begun and _begun[0].done():
        _begun.popleft()
    _begun.append(future)


def _rest(process: int) -> None:
    if os.getpid() != process:
        return  # a forked child: it has none of the workers
    from pyddpdiag import _native

    # Wait for the works that we know of; for all others, a short sleep gives the workers the processor.
    _native.wait_for_workers()
    until = time.monotonic() + WAIT_S
    while not all(future.done() for future in _begun) and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(REST_S)
