"""Notes where the script is while its rank records nothing: if the others wait for it, that is the answer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final

from pyddpdiag import _native
from pyddpdiag.model.ending import Stay
from pyddpdiag.record.script_lines import lines_of_frame
from pyddpdiag.record.side_thread import Over, SideThread
from pyddpdiag.system.clock import monotonic_ns
from pyddpdiag.system.frames import main_frame

LOOK_S: Final = 1.0
LEAST_S: Final = 2.0
"""A shorter time without a record is not worth a note."""

GROWTH: Final = 1.5
"""A note is renewed when this many times as long has passed as at the note before. And only what lasts longer by this
than what has come to its end before is noted: a script whose steps take long writes nothing at each of them."""


class Whereabouts:
    """A daemon thread that looks at the main thread's lines while no record comes. It never disturbs the training.

    Args:
        core: whose records are looked at.
        note: takes what was seen; the thread ends when this is gone.
    """

    def __init__(self, core: _native.Recorder, note: weakref.WeakMethod[Callable[[Stay], None]]) -> None:
        self._core = core
        self._note = note
        self._thread = SideThread("pyddpdiag whereabouts", self._watch)

    def close(self) -> None:
        """Ends the thread. Waits for it for a moment only."""
        self._thread.close()

    def _watch(self, over: Over) -> None:
        # Whatever goes wrong, a report only says less without a note.
        with suppress(Exception):
            self._look_on(over)

    def _look_on(self, over: Over) -> None:
        stall = Stall(monotonic_ns())
        while not over.wait(LOOK_S):
            note = self._note()
            if note is None:
                return
            stay = stall.look(self._core.counters()["tickets"], monotonic_ns(), _lines)
            if stay is not None:
                note(stay)
            del note  # it would keep the recorder alive


class Stall:
    """Decides what is worth a note. Times are nanoseconds, `begun` is when the looking begins."""

    def __init__(self, begun: int) -> None:
        self._tickets = 0
        self._since = begun
        self._longest_s = 0.0
        self._threshold_s = LEAST_S
        self._lines: tuple[str, ...] = ()

    def look(self, tickets: int, now: int, lines: Callable[[], tuple[str, ...]]) -> Stay | None:
        """One look: how many records there were so far, and how to learn the lines, the outermost first.

        They are asked for only in a silence that may become worth a note: the thread that looks at another
        one's frames may be the last to release what they hold.
        """
        stalled_s = (now - self._since) / 1e9
        if tickets != self._tickets:
            # What came before the first record was no stall.
            self._longest_s = max(self._longest_s, stalled_s) if self._tickets else 0.0
            self._threshold_s = max(LEAST_S, GROWTH * self._longest_s)
            self._tickets, self._since, self._lines = tickets, now, ()
            return None
        if not tickets or stalled_s < self._threshold_s / 2:
            return None
        self._lines = _common(self._lines, lines()) if self._lines else lines()
        if stalled_s < self._threshold_s or not self._lines:
            return None
        self._threshold_s = GROWTH * stalled_s
        return Stay(self._lines[-1], self._since, now)


def _lines() -> tuple[str, ...]:
    return lines_of_frame(main_frame())


def _common(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """The lines that the thread has not left since; where it has left all, those in which it is."""
    pairs = zip(before, now, strict=False)
    kept = tuple(line for line, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return kept or tuple(now)
