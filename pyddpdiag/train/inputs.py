"""Looks at the files a run needs before any rank is started: an error then is one error. Free of torch."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.errors import CheckpointError, UsageError
from pyddpdiag.train.archs import arch_of
from pyddpdiag.train.images import find_images, require_pillow
from pyddpdiag.train.settings import TrainSettings
from pyddpdiag.train.text import read_text


def check_inputs(settings: TrainSettings) -> None:
    """Raises `DataError`, `CheckpointError` or `UsageError` if data, checkpoint or script cannot be used."""
    if settings.script is not None:
        path = split_script(settings.script)[0]
        if not path.is_file():
            raise UsageError(f"--script: there is no file {path}.")
        return
    if settings.resume is not None and not Path(settings.resume).is_file():
        raise CheckpointError(
            f"There is no checkpoint {settings.resume}.", hint="--resume FILE, as --checkpoint wrote it."
        )
    kind = arch_of(settings.arch).kind
    if kind == "images":
        require_pillow()
        find_images(Path(settings.data or ""))
    elif kind == "text":
        read_text(Path(settings.data or ""))


def split_script(text: str) -> tuple[Path, str]:
    """`FILE` or `FILE:FUNCTION` as file and function, "train" by default; a drive's colon is none of it."""
    head, colon, tail = text.rpartition(":")
    if colon and tail.isidentifier() and head:
        return Path(head), tail
    return Path(text), "train"
