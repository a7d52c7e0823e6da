"""Passes over a loader without gradients: what an evaluation goes through, and for how long."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from pyddpdiag.model.training import MOST, Evaluated, Loaded
from pyddpdiag.record.batch_marks import batch_mark
from pyddpdiag.record.loaders import described
from pyddpdiag.record.script_lines import line_of_frame
from pyddpdiag.system.clock import monotonic_ns
from pyddpdiag.system.handlers import by_handler


@dataclass
class _Pass:
    since_ns: int
    facts: Loaded
    where: str
    mark: int = 1  # 0: it cannot be read


class Evaluations:
    """The evaluations of one rank's training.

    Args:
        found: called when there is something new to be written down.
    """

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self._open: WeakKeyDictionary[Any, _Pass] = WeakKeyDictionary()
        self._seen: dict[tuple[Loaded, str], Evaluated] = {}

    def took(self, iterator: Any, batch: object, since_ns: int) -> None:
        """A loader's iterator brought a batch, with gradients switched off; `since_ns`: since when that was awaited."""
        try:
            self._took(iterator, batch, since_ns)
        except Exception as error:  # of somebody's own class: the evaluation must not end by it
            self._open.pop(iterator, None)
            if by_handler(error):
                raise

    def ended(self, iterator: Any) -> None:
        """That iterator has no more batches."""
        one = self._open.pop(iterator, None)
        if one is None:
            return
        key = (one.facts, one.where)
        before = self._seen.get(key)
        if before is None and len(self._seen) >= MOST:
            return
        before = before or Evaluated(one.facts, one.where)
        passes = before.passes + 1
        self._seen[key] = replace(
            before,
            passes=passes,
            seconds=before.seconds + (monotonic_ns() - one.since_ns) / 1e9,
            marks=before.marks if len(before.marks) >= MOST else (*before.marks, one.mark),
        )
        if passes & (passes - 1) == 0:
            self._found()

    def evaluated(self) -> tuple[Evaluated, ...]:
        """What was seen."""
        return tuple(self._seen.values())

    def _took(self, iterator: Any, batch: object, since_ns: int) -> None:
        if getattr(iterator, "_num_yielded", 0) == 1:
            self._open.pop(iterator, None)
            # Two loaders side by side are one evaluation.
            seen = None if self._open else described(iterator)
            if seen is None:
                return
            # The lines of this package are none of the script's.
            self._open[iterator] = _Pass(since_ns, seen[0], line_of_frame(sys._getframe()))
        one = self._open.get(iterator)
        if one is not None and one.mark:
            one.mark = batch_mark(batch, one.mark)
