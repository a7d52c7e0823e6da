"""A daemon thread beside the training, which looks now and then until it is told to end."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from pyddpdiag.system.threads import Unlisted, await_end, start_beside

_LEAVE_S = 1.0
_REST_S = 0.2
"""A fork waits no longer for a thread that is looking."""


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
        rests_at_forks: it ends before this process forks, and `run` is called again after that, or with `go_on`: of a
            script that has no other thread, Python 3.12 and newer would say that it forks with several.
    """

    def __init__(self, name: str, run: Callable[[Over], None], *, rests_at_forks: bool = False) -> None:
        self._name = name
        self._run = run
        self._closed = self._rests = False
        self._begin()
        if rests_at_forks and hasattr(os, "register_at_fork"):
            _watch_forks()
            _resting.add(self)

    def close(self) -> None:
        """Ends the thread. Waits for it for a moment only: it may be looking."""
        self._closed = True
        _resting.discard(self)
        self._over.set()
        if not self._is_here():
            self._thread.join(_LEAVE_S)

    def _begin(self) -> None:
        self._over = Over()
        self._thread = Unlisted(self._name, partial(self._run, self._over))
        # The training does not fail for want of one.
        with suppress(RuntimeError):
            start_beside(self._thread)

    def _is_here(self) -> bool:
        """Whether the thread itself asks. Not by `current_thread`, which lists the one that asks from then on."""
        return self._thread.native_id == threading.get_native_id()

    def rest(self) -> None:
        """Ends the thread until it is to go on."""
        self._rests = True
        self._over.set()
        if self._thread.is_alive() and not self._is_here():
            await_end(self._thread, _REST_S)

    def go_on(self) -> None:
        """Begins again if it rests, and was not closed meanwhile."""
        if self._rests and not self._closed:
            self._rests = False
            self._begin()


_resting: weakref.WeakSet[SideThread] = weakref.WeakSet()
_watches_forks = False


def _watch_forks() -> None:
    global _watches_forks
    if not _watches_forks:
        _watches_forks = True
        os.register_at_fork(before=_rest, after_in_parent=_go_on, after_in_child=_resting.clear)


def _rest() -> None:
    for one in list(_resting):
        one.rest()


def _go_on() -> None:
    # Python 3.13 counts the threads only after this: whoever has the thread lets it go on later.
    for one in list(_resting) if sys.version_info[:2] != (3, 13) else ():
        one.go_on()
