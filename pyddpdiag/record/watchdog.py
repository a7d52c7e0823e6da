"""Speaks up when a rank makes no progress: prints what `pyddpdiag hang` would, once per standstill."""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyddpdiag.errors import PyddpdiagError, UsageError
from pyddpdiag.output import Buffer, say
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.system.frames import current_frames
from pyddpdiag.system.threads import names

LEAST_S: Final = 1.0
LOOKS: Final = 4
"""How often it looks at its trace within the time that may pass."""

NEWEST: Final = 512
"""Records of the own trace to look at for an operation that does not end."""


def require_seconds(seconds: float | None) -> None:
    """Refuses a time that no watchdog can wait for.

    Raises:
        UsageError: it is not a number of at least one second.
    """
    if seconds is not None and not (math.isfinite(seconds) and seconds >= LEAST_S):
        raise UsageError(
            f"watchdog_s is {seconds}, but it must be at least {LEAST_S:g} s.",
            hint="leave it out for no watchdog.",
        )


class Watchdog:
    """A daemon thread that looks at one rank's own trace. Never ends anything, never raises into the training.

    Args:
        path: of the trace; the folder around it is the run's.
        rank: whose it is.
        seconds: an operation in flight, or a silence after the first record, of this length is a standstill.
        is_paused: whether nothing is being recorded on purpose; the thread ends when this is gone.
    """

    def __init__(
        self, path: Path, rank: int, seconds: float, is_paused: weakref.WeakMethod[Callable[[], bool]]
    ) -> None:
        self._path = path
        self._rank = rank
        self._seconds = seconds
        self._is_paused = is_paused
        self._thread = SideThread("pyddpdiag watchdog", self._watch)

    def close(self) -> None:
        """Ends the thread. Waits for it for a moment only: it may be looking."""
        self._thread.close()

    def _watch(self, over: Over) -> None:
        try:
            self._look_on(over)
        except Exception as error:
            # Whatever it is, it must not disturb the training.
            say(f"rank {self._rank}: the watchdog has stopped: {type(error).__name__}: {error}", sys.stderr)

    def _look_on(self, over: Over) -> None:
        stands = False
        tickets, since = -1, time.monotonic()
        while not over.wait(self._seconds / LOOKS):
            is_paused = self._is_paused()
            if is_paused is None:
                return
            paused = is_paused()
            del is_paused  # it would keep the recorder alive
            now = time.monotonic()
            try:
                seen, longest_s = _own_trace(self._path)
            except PyddpdiagError:
                continue  # replaced or cut short: nothing to tell
            if seen != tickets or paused or seen == 0:
                tickets, since = seen, now
            # An operation does not end, or nothing came after the newest record.
            still_s = max(now - since, longest_s)
            if still_s >= self._seconds and not stands and not paused:
                self._speak(still_s)
            stands = still_s >= self._seconds

    def _speak(self, seconds: float) -> None:
        from pyddpdiag.live.answer import print_hang
        from pyddpdiag.live.hang import hang

        out = Buffer(sys.stderr)
        try:
            found = hang(self._path.parent)
        except PyddpdiagError as error:
            out.write(f"{error}\n")
        else:
            if found.status in ("moving", "ended"):
                return
            print_hang(found, out)
        # One piece: the ranks' messages must not mix.
        say(
            f"\nrank {self._rank}: no progress for {seconds:.0f} s (watchdog). The run as seen from here:\n"
            f"{out.getvalue()}\n  Python stack of this rank's process\n{_own_stacks()}",
            sys.stderr,
        )
        sys.stderr.flush()


def _own_trace(path: Path) -> tuple[int, float]:
    """How many tickets the own trace has given out, and for how many seconds its oldest operation is in flight."""
    from pyddpdiag.system.clock import monotonic_ns
    from pyddpdiag.trace.layout import TIMES_USED, Kind
    from pyddpdiag.trace.reader import is_in_flight, read_trace

    trace = read_trace(path, newest=NEWEST)
    oldest_s = 0.0
    for kind in (Kind.BUCKET, Kind.COLLECTIVE):
        records = trace.of_kind(kind)
        records = records[is_in_flight(records)]
        for begun in records["times"][:, : TIMES_USED[kind]].tolist():
            first = min((at for at in begun if at > 0), default=0)
            if first:
                oldest_s = max(oldest_s, (monotonic_ns() - first) / 1e9)
    return trace.header.tickets, oldest_s


def _own_stacks() -> str:
    """The Python stacks of this process's threads, the main thread first; not the watchdog's own."""
    known = names()
    main = threading.main_thread().ident
    found = []
    for ident, frame in sorted(current_frames().items(), key=lambda item: item[0] != main):
        if ident != threading.get_ident():
            lines = "".join(traceback.format_stack(frame)).rstrip()
            found.append(f"    Thread {known.get(ident, ident)}\n{lines}")
    return "\n".join(found)
