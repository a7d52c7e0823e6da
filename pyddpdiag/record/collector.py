"""Tells a recorder how long Python's garbage collector holds up the process."""

from __future__ import annotations

import gc
import time
from contextlib import suppress
from typing import Any

from pyddpdiag import _native


class CollectorWatch:
    """Adds the collector's pauses to a recorder's usage records until it is closed.

    Collections may follow each other on different threads, but never overlap: the interpreter runs one at a time.
    """

    def __init__(self, core: _native.Recorder) -> None:
        self._core: _native.Recorder | None = core
        self._begun_ns = 0
        core.add_collector_pause(0)
        gc.callbacks.append(self._note)

    def close(self) -> None:
        """Stop watching. May be called again."""
        if self._core is not None:
            self._core = None
            with suppress(ValueError):  # a script may have cleared the list
                gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, Any]) -> None:
        now = time.monotonic_ns()
        if phase == "start":
            self._begun_ns = now
        elif self._begun_ns and self._core is not None:
            self._core.add_collector_pause(now - self._begun_ns)
            self._begun_ns = 0
