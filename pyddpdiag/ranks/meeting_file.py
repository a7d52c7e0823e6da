"""The fresh rendezvous file of a launch, in a temporary folder whose name identifies its owner."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from pyddpdiag.ranks import identity
from pyddpdiag.system import processes

_PREFIX = "pyddpdiag-rendezvous-"
_NAME = re.compile(_PREFIX + r"([0-9a-f]{12})-(\d+)-(\d+)-.*")
# Long after every start has ended, so a live launch that we fail to see loses nothing.
_MIN_AGE_S = 3600.0


def _machine_id() -> str:
    return sha256(identity.machine().encode()).hexdigest()[:12]


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
