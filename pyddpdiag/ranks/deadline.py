"""A limit on something that blocks inside native code and may ignore its own timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class Deadline:
    """Calls `on_expiry` from another thread unless the block ends within `seconds`.

    Waits inside torch or Gloo cannot be interrupted from Python, so `on_expiry` is expected to end the
    process.
    """

    def __init__(self, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._timer = threading.Timer(seconds, on_expiry)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
