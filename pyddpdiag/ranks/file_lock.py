"""Whether another process holds a lock on a rendezvous file: torch's FileStore would wait for it for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyddpdiag.ranks.tcp import Holder, named

_POLL_S = 0.05


def held(path: Path, timeout_s: float) -> bool:
    """Whether somebody keeps the file locked for `timeout_s`; a store holds its lock for moments only.

    Raises:
        OSError: the file cannot be opened.
    """
    limit = time.monotonic() + timeout_s
    while _locked(path):
        if time.monotonic() >= limit:
            return True
        time.sleep(_POLL_S)
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
