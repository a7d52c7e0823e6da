"""How long a loop waits for its batches, even without a recorder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Waiting:
    """Adds up the seconds spent in a loader, over all loops over `of`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def of(self, loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches."""
        batches = iter(loader)
        while True:
            begin = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self.seconds += time.perf_counter() - begin
            yield batch
