"""Reads the note `rank_<N>.end`, which a process leaves that a signal ends (`csrc/platform/last_signal.hpp`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from pyddpdiag.model.ending import MESSAGE_LIMIT, End, note_beside
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.output import clean
from pyddpdiag.system.regular_file import RegularFile

# By Linux's numbers: the only system that writes such notes.
_NAMES: Final = {
    1: "SIGHUP",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    8: "SIGFPE",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    15: "SIGTERM",
    24: "SIGXCPU",
}
_LIMIT: Final = 4096


def with_last_signal(sidecar: Sidecar, trace: Path) -> Sidecar:
    """The sidecar of a trace, with the signal that ended its process if nothing else is known to have ended it."""
    if sidecar.end is not None or sidecar.closed:
        return sidecar
    try:
        with RegularFile(note_beside(trace)) as file:
            end = _parse(file.read(0, _LIMIT), sidecar.pid)
    except (OSError, ValueError):
        return sidecar
    return replace(sidecar, end=end)


def _parse(raw: bytes, pid: int) -> End:
    """Raises `ValueError` for what is no note of the process."""
    first, _, text = raw.decode("utf-8", "replace").partition("\n")
    process, signal, at_ns = (int(word) for word in first.split(" "))
    if process != pid or signal not in _NAMES or not 0 < at_ns <= 2**61:
        raise ValueError("not its note")
    return End(
        signal=_NAMES[signal], message=clean(text.strip().partition("\n")[0], MESSAGE_LIMIT), at_ns=at_ns
    )
