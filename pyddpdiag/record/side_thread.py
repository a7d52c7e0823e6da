"""A daemon thread beside the training, which looks now and then until it is told to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_LEAVE_S = 1.0


class Over:
    """Whether a thread is to end.

    To wait for that takes less of the processor than `threading.Event.wait`, which makes a lock each time.
    """

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._held.acquire()

    def set(self) -> None:
        """It is; safe to call again."""
        self._release()

    def wait(self, seconds: float) -> bool:
        """Waits until it is, `seconds` at most; whether it is."""
        if not self._held.acquire(timeout=max(0.0, seconds)):
            return False
        self._release()
        return True

    @property
    def within(self) -> Callable[[float], bool]:
        """As `wait`, for a thread that ends at the first True and never waits for less than nothing: quicker, because
        no Python runs for it."""
        return partial(self._held.acquire, True)

    def _release(self) -> None:
        # Somebody else has done it meanwhile.
        with suppress(RuntimeError):
            self._held.release()


class SideThread:
    """Starts at once; where the system grants no further thread, nobody looks. `run` is its body, and asks `over`
    between its looks.

    Args:
        name: of the thread.
        run: takes this object's `over`; what it raises must not leave it.
    """

    def __init__(self, name: str, run: Callable[[Over], None]) -> None:
        self._over = Over()
        self._thread = threading.Thread(target=run, args=(self._over,), name=name, daemon=True)
        # The training does not fail for want of one.
        with suppress(RuntimeError):
            self._thread.start()

    def close(self) -> None:
        """Ends the thread. Waits for it for a moment only: it may be looking."""
        self._over.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_LEAVE_S)
