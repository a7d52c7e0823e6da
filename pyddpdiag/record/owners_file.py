"""Replaces a file beside the trace as a whole, so that a reader never sees half of it."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Writes it by rename, for its owner only, like the trace: it shows hosts, paths and the program's structure.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    # Left by a process that was killed while writing: no other process writes this rank's file.
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


__all__ = ["replace_file"]
