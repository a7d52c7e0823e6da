"""Tells a recorder how long Python's garbage collector holds up the process."""

from __future__ import annotations

import gc
from contextlib import suppress

from pyddpdiag import _native


class CollectorWatch:
    """Adds the collector's pauses to a recorder's usage records until it is closed."""

    def __init__(self, core: _native.Recorder) -> None:
        self._note = _native.collector_watch(core)
        gc.callbacks.append(self._note)

    def close(self) -> None:
        """Stop watching. May be called again."""
        with suppress(ValueError):  # a script may have cleared the list
            gc.callbacks.remove(self._note)
