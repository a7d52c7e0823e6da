"""Explains the error that ends a script which records: after its traceback, what the catalog of messages knows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from pyddpdiag.output import say
from pyddpdiag.record.once import OncePerProcess

_arranged = OncePerProcess()


def arrange(rank: int, note: Callable[[BaseException], None]) -> None:
    """Adds the explanation to what the interpreter prints of an uncaught exception, and calls `note` with it.

    Once per process.
    """
    if not _arranged.first_time():
        return
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        note(error)
        text = words(error, rank)
        if text:
            say(text, sys.stderr)

    sys.excepthook = show


def words(error: BaseException, rank: int) -> str:
    """What to add to the error of a rank; "" if nothing is known, or it says all by itself."""
    # Gloo's and torch's errors are RuntimeErrors; those of other classes are the script's own business.
    if not isinstance(error, (RuntimeError, ConnectionError)):
        return ""
    from pyddpdiag.messages.explain import explain  # a fifth of what a rank would load for us

    found = explain(error)
    if not found.known or found.kind == "pyddpdiag":
        return ""
    return f"pyddpdiag: rank {rank}: {found}"
