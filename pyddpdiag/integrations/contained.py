"""The one guard around all that torch calls of ours: an error of ours never reaches the training."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from pyddpdiag.output import say
from pyddpdiag.system.handlers import by_handler


class _Contained:
    """`with contained:` ends where an exception is raised within it, and goes on after it.

    The first one of a process is said in a line. One that a script's signal handler raises is the script's, wherever
    it strikes. What runs in every step has no room for its two calls, and asks `holds` of what it catches.
    """

    def __init__(self) -> None:
        self._said = False
        self._passes: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return error is not None and self.holds(error)

    def holds(self, error: BaseException) -> bool:
        """Whether an error ends here."""
        if not isinstance(error, Exception) or error is self._passes or by_handler(error):
            return False
        if not self._said:
            self._said = True
            with suppress(Exception):
                rank = os.environ.get("RANK", "?")
                say(f"pyddpdiag run: rank {rank}: not all is recorded: {_described(error)}", sys.stderr)
        return True

    def let_pass(self, error: Exception) -> None:
        """Lets an error end the training after all: to go on would be worse."""
        self._passes = error


contained: Final = _Contained()


def _described(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (
        f", at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
    )
    return f"{type(error).__name__}: {error}{where}"
