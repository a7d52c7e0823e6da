"""Notes in each trace how its process ended, for scripts that never close their recorder.

A process that is killed comes to note nothing. So a trace without a note and without a process is that of a lost
rank, even if nothing was in flight and no other rank says a word.
"""

from __future__ import annotations

import os
import sys
import weakref
from multiprocessing import util
from typing import Any

from pyddpdiag import _native
from pyddpdiag.record import last_words

_watched: list[weakref.ref[Any]] = []
_arranged: set[int] = set()  # processes: a forked child has its parent's


def watch(recorder: object, core: _native.Recorder, rank: int) -> None:
    """Note the end in the trace of `core`: that of the process, or before that the end of `recorder`.

    A recorder that nobody holds any more records nothing more. The first note counts.
    """
    last_words.arrange(rank)
    if os.getpid() not in _arranged:
        _arranged.add(os.getpid())
        # multiprocessing's exit, which every process has: it comes before that of the interpreter, which a forked
        # child does not reach, and while an exception that ends a child is still seen.
        util.Finalize(None, _process_ends, exitpriority=0)
    _watched.append(weakref.ref(recorder, _watched.remove))
    # At the exit the note above is the first.
    weakref.finalize(recorder, core.mark_ended, True).atexit = False


def _process_ends() -> None:
    orderly = not _by_exception()
    for reference in _watched:
        recorder = reference()
        if recorder is not None:
            recorder.core.mark_ended(orderly)


def _by_exception() -> bool:
    """Whether an exception ends this process that nobody caught."""
    error = sys.exc_info()[1]  # of a process of multiprocessing, which runs us while its target unwinds
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    # The interpreter sets this when it has printed an uncaught exception; a prompt does so and goes on.
    uncaught = getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
    return error is not None or uncaught


__all__ = ["watch"]
