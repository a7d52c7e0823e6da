"""Replaces a file beside the trace as a whole, so that a reader never sees half of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pyddpdiag.system.replaced_files import WITHIN_S, patiently, replace

LAST_S: Final = 3.0
"""How long to try where nothing comes after this: what is not written then is lost."""


def replace_file(path: Path, text: str, within_s: float = WITHIN_S) -> None:
    """Writes it by rename, for its owner only, like the trace: it shows hosts, paths and the program's structure.

    Args:
        path: of the file.
        text: its new content.
        within_s: how long to try where somebody has it open (`replaced_files`).

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    # Left by a process that was killed while writing: no other process writes this rank's file.
    patiently(lambda: temporary.unlink(missing_ok=True), within_s)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    replace(temporary, path, within_s)
