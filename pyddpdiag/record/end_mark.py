"""Notes in each trace how its process ended, for scripts that never close their recorder.

A process that is killed comes to note nothing. So a trace without a note and without a process is that of a lost
rank, even if nothing was in flight and no other rank says a word.
"""

from __future__ import annotations

import sys
import weakref
from contextlib import suppress
from multiprocessing import util
from pathlib import Path
from typing import Any

from pyddpdiag import _native
from pyddpdiag.model.ending import MESSAGE_LIMIT, NAME_LIMIT, End, Stay, note_beside
from pyddpdiag.output import clean
from pyddpdiag.record import last_words
from pyddpdiag.record.once import OncePerProcess
from pyddpdiag.record.script_lines import line_of_error, lines_of_frame
from pyddpdiag.system.clock import monotonic_ns
from pyddpdiag.system.frames import main_frame

_watched: list[weakref.ref[Any]] = []
_arranged = OncePerProcess()


def watch(recorder: object, core: _native.Recorder, rank: int, path: Path) -> None:
    """Note the end in the trace of `core`, at `path`: that of the process, or before that the end of `recorder`.

    A recorder that nobody holds any more records nothing more. The first note counts.
    """
    last_words.arrange(rank, path.parent, _note)
    if _arranged.first_time():
        # multiprocessing's exit, which every process has: it comes before that of the interpreter, which a forked
        # child does not reach, and while an exception that ends a child is still seen.
        util.Finalize(None, _process_ends, exitpriority=0)
        _native.look_before_terminate(_look)
    _watched.append(weakref.ref(recorder, _watched.remove))
    # At the exit the note above is the first.
    weakref.finalize(recorder, core.mark_ended, True).atexit = False
    note = note_beside(path.absolute())
    with suppress(OSError):
        note.unlink(missing_ok=True)  # of an earlier run, whose trace was overwritten
    _native.note_last_signal(str(note))


def closed(path: Path) -> None:
    """The recorder of the trace at `path` is closed: how the process ends is not its concern any more."""
    _native.forget_last_signal(str(note_beside(path.absolute())))


def _process_ends() -> None:
    error = _uncaught()
    if error is not None:
        _note(error)
    for reference in _watched:
        recorder = reference()
        if recorder is not None:
            recorder.core.mark_ended(error is None)
            recorder.modules.note_ended()


def _note(error: BaseException) -> None:
    """Notes the exception that ends this process, in the sidecars of its recorders. Never raises."""
    with suppress(Exception):
        end = End(
            error=clean(type(error).__name__, NAME_LIMIT),
            message=clean(_first_line(error), MESSAGE_LIMIT),
            where=line_of_error(error),
            at_ns=monotonic_ns(),
        )
        for reference in _watched:
            recorder = reference()
            # What comes after the recording is not its concern, unless it is what ended it.
            if recorder is not None and (not recorder.closed or recorder.closed_by_error):
                recorder.modules.note_end(end)


def _look() -> None:
    """Notes at which line the script is while a thread of Gloo's ends the process. Never raises."""
    with suppress(Exception):
        lines = lines_of_frame(main_frame())
        if not lines:
            return
        now = monotonic_ns()
        for reference in _watched:
            recorder = reference()
            if recorder is not None and not recorder.closed:
                recorder.modules.note_stay(Stay(lines[-1], now, now))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")


def _uncaught() -> BaseException | None:
    """The exception that ends this process and that nobody caught."""
    error = sys.exc_info()[1]  # of a process of multiprocessing, which runs us while its target unwinds
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        # torch.multiprocessing.spawn reports the target's error to the parent, and then exits.
        return error.__context__ if isinstance(error.__context__, Exception) else error
    if error is None and not hasattr(sys, "ps1"):
        # The interpreter sets this when it has printed an uncaught exception; a prompt does so and goes on.
        error = getattr(sys, "last_value", None)
    return error
