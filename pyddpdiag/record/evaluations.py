"""Passes over a loader without gradients: what an evaluation goes through, and for how long."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from pyddpdiag.model.training import MOST, Evaluated, Loaded
from pyddpdiag.own_clock import monotonic_ns
from pyddpdiag.record.loaders import described
from pyddpdiag.record.script_lines import line_of_frame

VALUES: Final = 1024
"""Of each batch, so many tell whether it is another rank's batch as well. They come from all over it: where pictures
have a dark edge, or texts are padded, the first ones are the same in each batch."""

_DEPTH: Final = 4


@dataclass
class _Pass:
    since_ns: int
    facts: Loaded
    where: str
    mark: int | None = 0


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
        except Exception:  # of somebody's own class: the evaluation must not end by it
            self._open.pop(iterator, None)

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
            marks=before.marks if len(before.marks) >= MOST else (*before.marks, one.mark or 0),
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
        if one is not None and one.mark is not None:
            one.mark = _marked(batch, one.mark)


def _marked(batch: object, mark: int) -> int | None:
    """A checksum that goes on from `mark` over a batch; None: it holds no values that can be read quickly."""
    values = _first(batch, _DEPTH)
    if values is None or values.device.type != "cpu" or values.layout != torch.strided:
        return None
    if not values.numel() or not values.is_contiguous():
        return None
    mark = zlib.crc32(str(tuple(values.shape)).encode(), mark)
    # Odd, so that they do not all lie in one column of a picture.
    apart = values.numel() // VALUES | 1
    chosen = values.detach().view(-1)[::apart][:VALUES].contiguous()
    return zlib.crc32(chosen.view(torch.uint8).numpy().tobytes(), mark)


def _first(batch: object, depth: int) -> torch.Tensor | None:
    if isinstance(batch, torch.Tensor):
        return batch if batch.dim() else batch.reshape(1)
    parts: Sequence[object] = ()
    if isinstance(batch, Mapping):
        parts = list(batch.values())
    elif isinstance(batch, (list, tuple)):
        parts = batch
    if not depth:
        return None
    return next((found for part in parts if (found := _first(part, depth - 1)) is not None), None)


__all__ = ["Evaluations"]
