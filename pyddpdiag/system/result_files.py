"""Writes the files that commands make: never over another one unasked, and each as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pyddpdiag.errors import ResultExistsError, ResultWriteError
from pyddpdiag.system.replaced_files import replace


def refuse_existing(paths: Iterable[Path], force: bool, option: str) -> None:
    """Look before the work begins.

    Raises:
        ResultExistsError: one of the files exists, and `force` is not given.
    """
    there = [path for path in paths if path.exists()]
    if there and not force:
        raise ResultExistsError(
            f"'{there[0]}' exists already.", hint=f"give another {option}, or --force to replace it."
        )


def write_whole(path: Path, content: str | bytes | Iterable[str], *, force: bool, option: str) -> None:
    """Write a file under another name, then rename it: whoever reads it sees all of it, or the one before.

    `content`: all of it, or one piece after the other.

    Raises:
        ResultExistsError: it exists, and `force` is not given.
        ResultWriteError: the system refuses.
    """
    refuse_existing([path], force, option)
    pieces = [content] if isinstance(content, str | bytes) else content
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("wb") as file:
                for piece in pieces:
                    file.write(piece.encode("utf-8") if isinstance(piece, str) else piece)
            replace(beside, path)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise ResultWriteError(
            f"cannot write '{path}': {error.strerror or error}.", hint=f"give another {option}."
        ) from error
