"""Files of earlier runs at a file:// URL.

torch's FileStore appends to what it finds, so an old file makes one rank fail at once and the others hang.
The introductions in the file (see `meeting`) tell whose it is, and dead processes of this machine prove that
it is stale.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

from pyddpdiag.errors import RendezvousError
from pyddpdiag.train import identity
from pyddpdiag.train.meeting import Hello
from pyddpdiag.train.rendezvous import Place

_MARK = '{"pyddpdiag_hello": '
_POLL_S = 0.1
# Between opening the store and writing its introduction, a live rank needs a moment.
_PATIENCE_S = 2.0
# Clocks of two machines may differ by this much.
_CLOCK_SKEW_S = 60.0


class FileState(Enum):
    """What a rendezvous file is to a rank that wants to use it."""

    USABLE = auto()
    STALE = auto()
    FOREIGN = auto()
    BUSY = auto()
    UNKNOWN = auto()


def read_hellos(content: bytes) -> list[Hello]:
    """The introductions in the raw bytes of a store's file; damaged ones are left out."""
    text = content.decode("latin-1")  # the introductions are ASCII; what lies around them is binary
    decoder = json.JSONDecoder()
    hellos = []
    position = text.find(_MARK)
    while position >= 0:
        try:
            _, end = decoder.raw_decode(text, position)
            hellos.append(Hello.from_json(text[position:end]))
        except (ValueError, KeyError, TypeError):
            pass
        position = text.find(_MARK, position + 1)
    return hellos


def judge(content: bytes, place: Place, timeout_s: float, now: float) -> tuple[FileState, Hello | None]:
    """Judges a file by its content; the introduction that decided comes with the state."""
    if not content:
        return FileState.USABLE, None
    hellos = read_hellos(content)
    if not hellos:
        return FileState.FOREIGN, None
    here = identity.machine()
    alive = []
    for hello in hellos:
        local = hello.machine == here
        if local and not identity.is_alive(hello.pid, hello.started):
            continue
        alive.append(hello)
        # A rank gives up after its timeout, so one that came earlier than that belongs to a run that is under
        # way.
        if hello.rank == place.rank or now - hello.at > timeout_s + _CLOCK_SKEW_S:
            return (FileState.BUSY if local else FileState.UNKNOWN), hello
    if not alive:
        return FileState.STALE, hellos[0]
    dead = next((hello for hello in hellos if hello not in alive), None)
    return (FileState.BUSY, dead) if dead else (FileState.USABLE, alive[0])


def await_usable(path: Path, place: Place, timeout_s: float) -> None:
    """Returns when the file is missing, empty or of this run. Rank 0 removes it if it is provably stale.

    Raises `RendezvousError` if the file belongs to something else or that cannot be told, or on another rank
    than 0 if the file is stale and rank 0 has not removed it within `timeout_s`.
    """
    if not path.parent.is_dir():
        raise RendezvousError(
            f"The folder {path.parent} of the rendezvous file does not exist.", hint="make it first."
        )
    begin = time.monotonic()
    while True:
        state, hello = judge(_read(path), place, timeout_s, time.time())
        if state is FileState.USABLE:
            return
        waited = time.monotonic() - begin
        if state is FileState.STALE:
            if place.rank == 0:
                _remove(path)
                return
            if waited >= timeout_s:
                raise RendezvousError(
                    f"The rendezvous file {path} is left over from an earlier run; rank 0 did not come in "
                    f"{timeout_s:g} s to remove it.",
                    hint="start rank 0, or use another file.",
                )
        elif waited >= _PATIENCE_S:
            raise _refusal(path, state, hello)
        time.sleep(_POLL_S)


def tidy(path: Path, patience_s: float = 1.0) -> None:
    """Removes the file after a run that ended well, where torch's last store has not done so by itself.

    It doesn't as long as anything in any rank still holds the process group. Failing is no harm: the next run
    at this place finds only dead ranks in the file.
    """
    end = time.monotonic() + patience_s
    while path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    with suppress(OSError):  # on Windows, a rank that still has it open
        path.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RendezvousError(
            f"The rendezvous file {path} cannot be read: {error.strerror or error}.", hint="use another file."
        ) from error


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RendezvousError(
            f"The rendezvous file {path} of an earlier run cannot be removed: {error.strerror or error}.",
            hint="remove it yourself, or use another file.",
        ) from error


def _refusal(path: Path, state: FileState, hello: Hello | None) -> RendezvousError:
    who = hello.who() if hello else "nobody known"
    reasons = {
        FileState.FOREIGN: "was not written by pyddpdiag, or by another version of it",
        FileState.BUSY: f"belongs to another run or to an earlier start of this one: {who} was there",
        FileState.UNKNOWN: f"holds {who}, unseen from here: another run, or what is left of one",
    }
    return RendezvousError(
        f"The rendezvous file {path} exists, is not empty and {reasons[state]}.",
        hint="end what is using it and delete the file, or use another file.",
    )
