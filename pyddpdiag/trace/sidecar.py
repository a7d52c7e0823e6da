"""Reads sidecars: names for numbers in the records. They are optional, bounded and never trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyddpdiag.model.ending import MESSAGE_LIMIT, End, note_beside
from pyddpdiag.model.sidecar import Sidecar, from_json
from pyddpdiag.output import clean
from pyddpdiag.system.regular_file import FileIdentity, RegularFile

SIDECAR_LIMIT: Final = 4 * 2**20
"""Bytes of one sidecar. A model of 25,000 parameter tensors needs this much."""

RUN_LIMIT: Final = 64 * 2**20
"""Bytes of all sidecars of a run: 1,600 ranks with a model of 400 parameter tensors need this much."""

VALUES_LIMIT: Final = 2**19
"""Values in one sidecar: `{}` has three bytes in the file, and sixty in memory."""

RUN_VALUES_LIMIT: Final = 2**22


def read_sidecar(path: Path) -> tuple[Sidecar, tuple[str, ...]]:
    """Read one sidecar alone; see `SidecarReader.read`."""
    return SidecarReader().read(path)


class SidecarReader:
    """Reads the sidecars of one run, which share a budget: many small files cost no more than a few large ones.

    Names of one file (links) are read once, and equal texts of different ranks are kept once.
    """

    def __init__(self) -> None:
        self._bytes = RUN_LIMIT
        self._values = RUN_VALUES_LIMIT
        self._read: dict[FileIdentity, tuple[Sidecar, tuple[str, ...]]] = {}
        self._known: dict[Any, Any] = {}

    def read(self, path: Path) -> tuple[Sidecar, tuple[str, ...]]:
        """Read as much of a sidecar as can be understood. Never raises; says what was left out.

        Returns:
            the sidecar, and what is wrong with it.
        """
        try:
            with RegularFile(path) as file:
                if file.identity in self._read:
                    return self._read[file.identity]
                found = self._parse(file)
                if file.identity is not None:
                    self._read[file.identity] = found
                return found
        except FileNotFoundError:
            return Sidecar(), ("missing: names of hosts, groups and parameters are not known.",)
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or clean(str(error), 200) or type(error).__name__
            return Sidecar(), (f"cannot be read ({reason}): names are not known.",)

    def _parse(self, file: RegularFile) -> tuple[Sidecar, tuple[str, ...]]:
        """The content of an open sidecar. Raises what the system and `json` raise."""
        if file.size > SIDECAR_LIMIT:
            return Sidecar(), (f"larger than {SIDECAR_LIMIT >> 20} MiB, not read.",)
        if file.size > self._bytes:
            return Sidecar(), (
                f"not read: the run's sidecars are larger than {RUN_LIMIT >> 20} MiB together.",
            )
        self._bytes -= file.size
        text = file.read(0, SIDECAR_LIMIT)
        # Checked before parsing: values cost memory and time, and each comes with one of these characters.
        values = text.count(b",") + text.count(b"{") + text.count(b"[")
        if values > min(VALUES_LIMIT, self._values):
            return Sidecar(), ("not read: it holds more values than any recorder writes.",)
        self._values -= values
        raw = json.loads(text)
        if not isinstance(raw, dict):
            return Sidecar(), ("holds no JSON object: names are not known.",)
        return from_json(raw, lambda value: self._known.setdefault(value, value))


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
