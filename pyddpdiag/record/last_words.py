"""Explains the error that ends a script which records: after its traceback, what the catalog of messages knows."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pyddpdiag.output import say
from pyddpdiag.record.once import OncePerProcess

if TYPE_CHECKING:
    from pyddpdiag.messages.explain import Explanation

_arranged = OncePerProcess()


def arrange(rank: int, folder: Path, note: Callable[[BaseException], None]) -> None:
    """Adds the explanation to what the interpreter prints of an uncaught exception, and calls `note` with it.

    Once per process.
    """
    if not _arranged.first_time():
        return
    before = sys.excepthook

    @functools.wraps(before)
    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        # Python would print a traceback of what is raised here.
        with suppress(Exception):
            note(error)
        with suppress(Exception):
            text = words(error, rank, folder)
            if text:
                say(text, sys.stderr)

    sys.excepthook = show


def words(error: BaseException, rank: int, folder: Path) -> str:
    """What to add to the error of a rank that records into `folder`; "" if nothing is known, or it says all itself."""
    found = explained(error, folder)
    return f"pyddpdiag: rank {rank}: {found}" if found is not None else ""


def explained(error: BaseException, folder: Path | None = None) -> Explanation | None:
    """What the catalog knows of an error, with the lines to paste that hold here; None: nothing.

    Args:
        error: that ends this process.
        folder: of its trace; None: it has none.
    """
    # Gloo's and torch's errors are RuntimeErrors; those of other classes are the script's own business.
    if not isinstance(error, (RuntimeError, ConnectionError)):
        return None
    # A fifth of what a rank would load for us.
    from pyddpdiag.messages.explain import explain
    from pyddpdiag.messages.shells import HANG, READ_LOGS, Command, this_shell, write

    found = explain(error)
    if not found.known or found.kind == "pyddpdiag":
        return None
    hang = write(Command(("pyddpdiag", "hang", str(folder))), this_shell()) if folder is not None else ""
    # Nobody knows here in which files the ranks' output goes, or whether it does.
    lines = [hang if line == HANG else line for line in found.lines if not line.startswith(READ_LOGS)]
    return replace(found, lines=tuple(line for line in lines if line))
