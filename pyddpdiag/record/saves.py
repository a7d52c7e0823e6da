"""Into which files a script saves with `torch.save`: ranks that save into the same one damage it."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from pyddpdiag.model.saves import FILES, SPANS, Saved
from pyddpdiag.record.script_lines import line_of_frame
from pyddpdiag.system.clock import monotonic_ns
from pyddpdiag.system.handlers import quietly


class Saves:
    """The saves of one rank's training.

    Args:
        found: called when there is something new to be written down.
    """

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self._seen: dict[str, Saved] = {}

    def saved(self, target: object, since_ns: int) -> None:
        """Something was saved into a path or an open file, from `since_ns` on; only a file on a disk counts."""
        # Of somebody's own class, or the file is gone: the training must not end by it.
        with quietly:
            self._saved(target, since_ns, monotonic_ns())

    def saves(self) -> tuple[Saved, ...]:
        """What was seen."""
        return tuple(self._seen.values())

    def _saved(self, target: object, since_ns: int, until_ns: int) -> None:
        path, status = _file(target)
        if not stat.S_ISREG(status.st_mode):
            return
        # Containers may have another file at the same path, and one that was deleted may leave its number to another.
        named = f"{path}\0{status.st_dev}\0{status.st_ino}".encode(errors="surrogateescape")
        file = hashlib.blake2b(named, digest_size=8).hexdigest()
        before = self._seen.get(file)
        if before is None:
            if len(self._seen) >= FILES:
                return
            before = Saved(file, path.name, line_of_frame(sys._getframe()))
        times = before.times + 1
        span = () if len(before.spans) >= SPANS else ((since_ns, until_ns),)
        self._seen[file] = replace(before, times=times, spans=(*before.spans, *span))
        if times & (times - 1) == 0:
            self._found()


def _file(target: Any) -> tuple[Path, os.stat_result]:
    """The real path of a file that somebody saved into, and what the system says of it.

    Raises:
        TypeError, OSError, AttributeError: it is none, or one of somebody's own class, whose code is not to run.
    """
    kind = type(target)
    if issubclass(kind, (str, PurePath)):
        path = Path(target).resolve()
        return path, path.stat()
    if kind.__module__ not in ("_io", "tempfile"):
        raise TypeError("an object of another class")
    return Path(os.fsdecode(target.name)).resolve(), os.fstat(target.fileno())
