"""Notes where the script is while its rank records nothing: if the others wait for it in vain, that is the answer."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final

from pyddpdiag import _native
from pyddpdiag.model.ending import Stay
from pyddpdiag.record.script_lines import lines_of_frame
from pyddpdiag.trace.reader_clock import monotonic_ns

LOOK_S: Final = 1.0
LEAST_S: Final = 2.0
"""A shorter time without a record is not worth a note."""

GROWTH: Final = 1.5
"""A note is renewed when so many times as long has passed as at the note before. And only what lasts longer by this
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
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pyddpdiag whereabouts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. Waits for it for a moment only."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _watch(self) -> None:
        # Whatever goes wrong, a report only says less without a note.
        with suppress(Exception):
            self._look_on()

    def _look_on(self) -> None:
        tickets, since_ns, bar_s, longest_s = -1, monotonic_ns(), LEAST_S, 0.0
        lines: tuple[str, ...] = ()
        while not self._over.wait(LOOK_S) and self._note() is not None:
            seen, now_ns = self._core.counters()["tickets"], monotonic_ns()
            silent_s = (now_ns - since_ns) / 1e9
            if seen != tickets:
                longest_s = max(longest_s, silent_s)
                tickets, since_ns, bar_s = seen, now_ns, max(LEAST_S, GROWTH * longest_s)
                lines = ()
                continue
            if not seen:
                continue  # nothing has begun
            now = lines_of_frame(sys._current_frames().get(threading.main_thread().ident or 0))
            lines = _common(lines, now) if lines else now
            note = self._note()
            if silent_s >= bar_s and lines and note is not None:
                note(Stay(lines[-1], since_ns, now_ns))
                bar_s = GROWTH * silent_s
            del note  # it would keep the recorder alive


def _common(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """The lines that the thread has not left since; where it has left all, those in which it is."""
    pairs = zip(before, now, strict=False)
    kept = tuple(line for line, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return kept or tuple(now)


__all__ = ["Whereabouts"]
