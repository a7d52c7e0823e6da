"""Checks the files that a run needs before any rank starts, so an error appears once. Free of torch."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.errors import CheckpointError, UsageError
from pyddpdiag.train.settings import TrainSettings
from pyddpdiag.workloads.archs import arch_of
from pyddpdiag.workloads.images import find_images, require_pillow
from pyddpdiag.workloads.text import read_text


def check_inputs(settings: TrainSettings, *, checkpoint: bool = True) -> None:
    """Refuses data, a checkpoint or a script that cannot be used, before any rank is started.

    `checkpoint`: whether the file of --resume must be here; only rank 0 reads it.

    Raises:
        DataError: the data cannot be used.
        CheckpointError: there is no such checkpoint.
        UsageError: there is no such script, or a package that the data needs is missing.
    """
    if settings.script is not None:
        path = split_script(settings.script)[0]
        if not path.is_file():
            raise UsageError(f"--script: there is no file {path}.")
        return
    if checkpoint and settings.resume is not None and not Path(settings.resume).is_file():
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
