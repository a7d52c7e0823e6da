"""Checkpoints: rank 0 writes them completely or not at all, and sends what it reads to all ranks."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag.errors import CheckpointError
from pyddpdiag.system.replaced_files import replace
from pyddpdiag.train.events import EpochDone

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The state after some epochs.

    Attributes:
        arch: name of the network.
        classes: the classes that it distinguishes, in the order of its scores.
        model: state of the network.
        optimiser: state of the optimiser.
        history: one entry per epoch so far.
    """

    arch: str
    classes: tuple[str, ...]
    model: dict[str, Any]
    optimiser: dict[str, Any]
    history: tuple[EpochDone, ...]


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Writes beside `path`, to the disk, and renames: an interrupted write leaves the old file as it was.

    Raises:
        CheckpointError: that fails, as on a full disk.
    """
    buffer = io.BytesIO()
    fields = {
        "pyddpdiag_checkpoint": FORMAT,
        "arch": checkpoint.arch,
        "classes": list(checkpoint.classes),
        "model": checkpoint.model,
        "optimiser": checkpoint.optimiser,
        "history": [asdict(epoch) for epoch in checkpoint.history],
    }
    torch.save(fields, buffer)
    # One name for all: the next run overwrites what a killed run leaves.
    unfinished = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("wb") as file:
                file.write(buffer.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be written: {error.strerror or error}.",
            hint="free some space, or choose another --checkpoint; the last one that was written is untouched.",
        ) from error


def read_shared(path: Path, device: torch.device) -> Checkpoint:
    """Rank 0 reads the file and all ranks get its content, on their `device`; all must call this.

    Raises:
        CheckpointError: on every rank, if the file cannot be used.
    """
    content, problem = b"", ""
    if dist.get_rank() == 0:
        try:
            content = path.read_bytes()
        except OSError as error:
            problem = error.strerror or str(error)
    shared: list[Any] = [problem, len(content)]
    dist.broadcast_object_list(shared, src=0)
    problem, length = shared
    if problem:
        raise CheckpointError(
            f"The checkpoint {path} cannot be read: {problem}.",
            hint="--resume FILE, as --checkpoint wrote it.",
        )
    block = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(length).byte()
    dist.broadcast(block, src=0)
    return _parse(block.numpy().tobytes(), path, device)


def _parse(content: bytes, path: Path, device: torch.device) -> Checkpoint:
    try:
        fields = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        if fields["pyddpdiag_checkpoint"] != FORMAT:
            raise CheckpointError(
                f"The checkpoint {path} has format {fields['pyddpdiag_checkpoint']}, but this version reads {FORMAT}.",
                hint="use the version of pyddpdiag that wrote it.",
            )
        history = tuple(EpochDone(**epoch) for epoch in fields["history"])
        return Checkpoint(
            fields["arch"], tuple(fields["classes"]), fields["model"], fields["optimiser"], history
        )
    except CheckpointError:
        raise
    except Exception as error:  # what torch.load raises on a file that is none of its own is not documented
        raise CheckpointError(
            f"The file {path} is not a complete checkpoint of pyddpdiag ({type(error).__name__}).",
            hint="--resume FILE, as --checkpoint wrote it.",
        ) from error


def check_fit(checkpoint: Checkpoint, path: Path, arch: str, classes: tuple[str, ...]) -> None:
    """Refuses a checkpoint that does not belong to this training.

    Raises:
        CheckpointError: it belongs to another network or other classes.
    """
    if checkpoint.arch != arch:
        raise CheckpointError(
            f"The checkpoint {path} is of {checkpoint.arch}, but --arch is {arch}.",
            hint=f"use --arch {checkpoint.arch}.",
        )
    if checkpoint.classes != classes:
        raise CheckpointError(
            f"The checkpoint {path} distinguishes {len(checkpoint.classes)} classes, and they are not the "
            f"{len(classes)} of --data.",
            hint="use the data that it was trained on.",
        )
