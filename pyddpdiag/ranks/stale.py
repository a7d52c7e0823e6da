"""The file at a file:// URL where ranks meet: whose it is, whether it is stale or locked, and a fresh one for a launch.

torch's FileStore appends to what it finds, so an old file makes one rank fail at once and the others hang.
The introductions in the file (see `meeting`) show its owners, and dead processes of this machine prove that
it is stale.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from hashlib import sha256
from pathlib import Path

from pyddpdiag.errors import RendezvousError
from pyddpdiag.output import clean
from pyddpdiag.ranks import meeting
from pyddpdiag.ranks.meeting import MARK, MAX_BYTES, Hello
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.ranks.tcp import Holder, named
from pyddpdiag.system import processes
from pyddpdiag.system.regular_file import RegularFile

_LOCK_POLL_S = 0.05


def held(path: Path, timeout_s: float) -> bool:
    """Whether somebody keeps the file locked for `timeout_s`; a store holds its lock for moments only.

    Raises:
        OSError: the file cannot be opened.
    """
    limit = time.monotonic() + timeout_s
    while _locked(path):
        if time.monotonic() >= limit:
            return True
        time.sleep(_LOCK_POLL_S)
    return False


def holders(path: Path) -> list[Holder]:
    """The processes with a lock on the file, as far as the system tells."""
    try:
        there = path.stat()
        lines = Path("/proc/locks").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    device = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    inode = f":{there.st_ino}"
    found: set[int] = set()
    for line in lines:
        words = line.split()
        # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF; those that wait have an arrow. Some file systems
        # (overlays) show another device.
        if "->" in words or len(words) < 6 or not (words[5] == device or words[5].endswith(inode)):
            continue
        if words[4].isdigit() and int(words[4]) != os.getpid():
            found.add(int(words[4]))
    return [named(pid) for pid in sorted(found)]


def _locked(path: Path) -> bool:
    try:
        import fcntl
    except ImportError:
        return _locked_on_windows(path)
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _locked_on_windows(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            # Where a region is locked by another process, reading it fails.
            file.read(1)
    except PermissionError:
        return True
    return False


_PREFIX = "pyddpdiag-rendezvous-"
_NAME = re.compile(_PREFIX + r"([0-9a-f]{12})-(\d+)-(\d+)-.*")
# Long after every start has ended, so a live launch that we fail to see loses nothing.
_MIN_AGE_S = 3600.0


def _machine_id() -> str:
    return sha256(meeting.machine().encode()).hexdigest()[:12]


def sweep(folder: Path | None = None) -> int:
    """Removes what killed launchers left behind; returns the number of folders.

    Only folders whose launcher ran on this machine, is dead, and created them over an hour ago.
    """
    removed = 0
    for path in (folder or Path(tempfile.gettempdir())).glob(_PREFIX + "*"):
        match = _NAME.fullmatch(path.name)
        if match is None or match.group(1) != _machine_id():
            continue
        started = int(match.group(3)) / 1000
        try:
            old = time.time() - path.stat().st_mtime > _MIN_AGE_S
        except OSError:
            continue
        if old and not processes.is_alive(int(match.group(2)), started):
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed


@contextmanager
def fresh_file() -> Iterator[Path]:
    """The path of a file that does not exist yet, in a folder of its own that goes away with the block."""
    sweep()
    started = int(processes.started_at() * 1000)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{_machine_id()}-{os.getpid()}-{started}-"))
    try:
        yield folder / "store"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_MARK = MARK.encode()
# The ranks introduce themselves before anything else is written, so the beginning of a file shows its owners.
_MAX_READ = 16 * 1024 * 1024
# More than any run leaves behind: beyond this, somebody wants to keep us busy.
_MAX_HELLOS = 4096
_MAX_DAMAGED = 64
_POLL_S = 0.1
# Between opening the store and writing its introduction, a live rank needs a moment.
_RETRY_FOR_S = 2.0
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
    """The introductions in the raw bytes of a store's file; damaged ones are left out.

    Also empty if there are more of them, or more damaged ones, than any run leaves behind.
    """
    decoder = json.JSONDecoder()
    hellos: list[Hello] = []
    damaged = 0
    position = content.find(_MARK)
    while position >= 0:
        # The introductions are ASCII; what lies around them is binary.
        text = content[position : position + MAX_BYTES].decode("latin-1")
        end = 1
        try:
            _, length = decoder.raw_decode(text)
            hellos.append(Hello.from_json(text[:length]))
            end = length
        except (ValueError, RecursionError):
            damaged += 1
        if damaged > _MAX_DAMAGED or len(hellos) > _MAX_HELLOS:
            return []
        position = content.find(_MARK, position + end)
    return hellos


def judge(content: bytes, place: Place, timeout_s: float, now: float) -> tuple[FileState, Hello | None]:
    """Judges a file by its content; the introduction that decided comes with the state."""
    if not content:
        return FileState.USABLE, None
    hellos = read_hellos(content)
    if not hellos:
        return FileState.FOREIGN, None
    here = meeting.machine()
    alive: Hello | None = None
    dead: Hello | None = None
    for hello in hellos:
        local = hello.machine == here
        if local and not processes.is_alive(hello.pid, hello.started):
            dead = dead or hello
            continue
        alive = alive or hello
        # A rank gives up after its timeout, so one that arrived earlier than that belongs to a run in
        # progress.
        if hello.rank == place.rank or now - hello.at > timeout_s + _CLOCK_SKEW_S:
            return (FileState.BUSY if local else FileState.UNKNOWN), hello
    if alive is None:
        return FileState.STALE, dead
    return (FileState.BUSY, dead) if dead else (FileState.USABLE, alive)


def await_usable(path: Path, place: Place, timeout_s: float) -> None:
    """Returns when the file is missing, empty or of this run. Rank 0 removes it if it is provably stale.

    Raises:
        RendezvousError: something other than a regular file is at this path (a link, a pipe); the file belongs,
            or may belong, to something else; its folder is missing; a rank of this run left in it why it cannot start;
            or, on ranks other than 0, the file is stale and rank 0 has not removed it within `timeout_s`.
    """
    if not path.parent.is_dir():
        raise RendezvousError(
            f"The folder {path.parent} of the rendezvous file does not exist.", hint="make it first."
        )
    begin = time.monotonic()
    while True:
        waited = time.monotonic() - begin
        try:
            with RegularFile(path, links="none") as file:
                content = file.read(0, _MAX_READ)
        except FileNotFoundError:
            return
        except OSError as error:
            # On Windows we cannot open a file while another rank holds a lock on it.
            if isinstance(error, PermissionError) and waited < _RETRY_FOR_S:
                time.sleep(_POLL_S)
                continue
            raise RendezvousError(
                f"The rendezvous file {path} cannot be read: {error.strerror or error}.",
                hint="use another file, in a folder that only the ranks write to.",
            ) from error
        state, hello = judge(content, place, timeout_s, time.time())
        if state is FileState.USABLE:
            return
        if state is FileState.STALE:
            _heed(read_hellos(content))
            if place.rank == 0:
                _remove(path)
                return
            if waited >= timeout_s:
                raise RendezvousError(
                    f"The rendezvous file {path} is left over from an earlier run; rank 0 did not come in "
                    f"{timeout_s:g} s to remove it.",
                    hint="start rank 0, or use another file.",
                )
        elif waited >= _RETRY_FOR_S:
            raise _refusal(path, state, hello)
        time.sleep(_POLL_S)


def _heed(hellos: list[Hello]) -> None:
    """Tells what a rank left that could not start and is gone: it did not wait for a process that came so late."""
    began = processes.started_at()
    for hello in hellos:
        if hello.problem and hello.at >= began:
            raise RendezvousError(f"rank {hello.rank} cannot start: {clean(hello.problem)}")


def tidy(path: Path, timeout_s: float = 1.0) -> None:
    """Removes the file after a successful run, if torch's last store has not done so.

    The store doesn't while anything in any rank still holds the process group. A failure here is harmless:
    the next run at this place finds only dead ranks in the file.
    """
    end = time.monotonic() + timeout_s
    while path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    with suppress(OSError):  # on Windows, a rank that still has it open
        path.unlink(missing_ok=True)


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
