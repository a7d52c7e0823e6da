"""A limit on something that blocks inside native code and may ignore its own timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def deadline(seconds: float, on_expiry: Callable[[], None]) -> Iterator[None]:
    """Calls `on_expiry` from another thread unless the block ends within `seconds`.

    Waits inside torch or Gloo cannot be interrupted from Python, so `on_expiry` is expected to end the
    process.
    """
    timer = threading.Timer(seconds, on_expiry)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
