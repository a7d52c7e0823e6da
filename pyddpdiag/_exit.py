"""The end of a process that used Gloo.

A Gloo worker drops a work that is done a moment after it has told so, and with it the thread-local state of whoever
began the work, in which there are Python objects. A worker that is so late (on a busy machine) that the interpreter is
ending already is killed by Python when it asks for the interpreter's lock, and that aborts the whole process
("terminate called without an active exception"). torch does not wait for it; we do.
"""

from __future__ import annotations

import atexit
import time

REST_S = 0.05
_arranged: list[bool] = []


def arrange() -> None:
    """Lets the workers come to rest before the interpreter ends. Once per process, however often it is called."""
    if not _arranged:
        _arranged.append(True)
        atexit.register(_rest)


def _rest() -> None:
    from pyddpdiag import _native

    # For the works that we know of, and a nap for all others: it gives a worker the processor.
    _native.wait_for_workers()
    time.sleep(REST_S)


__all__ = ["arrange"]
