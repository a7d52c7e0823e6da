"""Marks a part of the program between steps that is not training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyddpdiag import _native


@contextmanager
def marked_phase(core: _native.Recorder, name: str) -> Iterator[None]:
    """A phase from here to the end of the block, however that ends."""
    phase = _native.Phase(core, name)
    try:
        yield
    finally:
        phase.end()
