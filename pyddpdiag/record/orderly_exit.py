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

from pyddpdiag.record.once import OncePerProcess

REST_S = 0.05
_arranged = OncePerProcess()


def arrange() -> None:
    """Lets the workers finish before the interpreter ends. Takes effect once per process, however often it is
    called."""
    if _arranged.first_time():
        atexit.register(_rest, os.getpid())


def _rest(process: int) -> None:
    if os.getpid() != process:
        return  # a forked child: it has none of the workers
    from pyddpdiag import _native

    # Wait for the works that we know of; for all others, a short sleep gives the workers the processor.
    _native.wait_for_workers()
    time.sleep(REST_S)


__all__ = ["arrange"]
