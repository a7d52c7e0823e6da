"""A checksum of a batch, by which ranks that are given the same one are told from those with their own."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any, Final

from pyddpdiag import _native
from pyddpdiag.record.held import is_plain, parts_of
from pyddpdiag.record.sampled import next_sampled
from pyddpdiag.record.unseen import unseen
from pyddpdiag.system.handlers import by_handler

VALUES: Final = 1024
"""Of each batch, so many tell whether it is another rank's batch as well. They come from all over it: where pictures
have a dark edge, or texts are padded, the first ones are the same in each batch."""

LEAST: Final = 16
"""Batches of fewer values may be equal by chance."""

_DEPTH: Final = 4
_PARTS: Final = 64  # the first ones are looked at
_LETTERS: Final = 256  # of each text
_LETTERS_OF: Final = {int: int.__repr__, float: float.__repr__, str: str.__str__}  # not as a subclass has it


class GivenBatches:
    """What a module is given in some of its passes with gradients."""

    def __init__(self) -> None:
        self.passes = 0
        self.due = 1
        """The next pass that is looked at; whoever knows that none is due counts it in `passes` himself."""
        self._marks: dict[int, int] = {}
        self._values: dict[int, int] = {}

    def look(self, given: object) -> None:
        """At the arguments of a pass."""
        self.passes += 1
        if self.passes == self.due:
            self.due = next_sampled(self.passes)
            self._marks[self.passes] = batch_mark(given, least=LEAST)
            self._values[self.passes] = _values(given)

    def marks(self) -> dict[int, int]:
        """By the pass, counted from 1; 0: it could not be read."""
        return self._marks.copy()

    def values(self) -> dict[int, int]:
        """How many its tensors had, likewise."""
        return self._values.copy()


def batch_mark(batch: object, before: int = 0, *, least: int = 1) -> int:
    """32 bits of a checksum that goes on from `before`; 0: it has fewer than `least` values, or cannot be read.

    Nothing is said of a batch with a part on another device or of an unknown class: that may be what differs.
    """
    try:
        parts = list(itertools.islice(_parts(batch, _DEPTH), _PARTS))
        tensors = [part for part in parts if type(part) is not str]
        with unseen():
            if sum(one.numel() for one in tensors) < least:
                return 0
        mark, most = before, VALUES // len(tensors)
        for one in tensors:
            mark = _native.mark_of_values(one, most, mark)
            if not mark:
                return 0
        rest = [part for part in parts if type(part) is str]
    except Exception as error:  # the training must not end by it
        if by_handler(error):
            raise
        return 0
    return zlib.crc32(f"{mark} {rest}".encode(errors="replace")) or 1


def _values(batch: object) -> int:
    try:
        parts = itertools.islice(_parts(batch, _DEPTH), _PARTS)
        with unseen():
            return sum(part.numel() for part in parts if type(part) is not str)
    except Exception as error:  # as above
        if by_handler(error):
            raise
        return 0


def _parts(batch: object, depth: int) -> Iterator[Any]:
    """Its tensors, and its plain values in letters; TypeError: it has others."""
    if batch is None or is_plain(batch):
        yield "None" if batch is None else batch
        return
    for plain, letters in _LETTERS_OF.items():
        if issubclass(type(batch), plain):
            yield letters(batch)[:_LETTERS]
            return
    inner = parts_of(batch)
    if inner is None:
        raise TypeError("a part of another class")
    if not depth:
        raise TypeError("parts within parts")
    for part in inner:
        yield from _parts(part, depth - 1)
