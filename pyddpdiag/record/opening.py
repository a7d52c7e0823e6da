"""Creates a rank's folder and trace, with errors that say what to do."""

from __future__ import annotations

import errno
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag.errors import NoProcessGroupError, RecorderClosedError, TraceExistsError, TraceFolderError
from pyddpdiag.system.limits import largest_file

_BESIDE_BYTES: Final = 2**16
"""Of a trace, besides its records."""


def require_group() -> None:
    """Refuses a process that belongs to no process group.

    Raises:
        NoProcessGroupError: that is the case.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise NoProcessGroupError(
            "a Recorder needs to know its rank, but torch.distributed is not initialised.",
            hint="make the Recorder after torch.distributed.init_process_group('gloo', ...).",
        )


def require_text(folder: str | Path | None, rank: int) -> None:
    """Refuses a folder name that no file system allows, or that cannot be sent to the other ranks.

    Raises:
        TraceFolderError: it holds a NUL character, or bytes that are not text.
    """
    name = str(folder)
    try:
        name.encode()
        sound = "\0" not in name
    except UnicodeEncodeError:
        sound = False
    if not sound:
        raise TraceFolderError(
            f"rank {rank}: the folder's name {name!a} holds a NUL character or bytes that are not UTF-8.",
            hint="give the run a folder whose whole path is plain text.",
        )


def make_folder(folder: Path, rank: int) -> None:
    """Creates the run's folder if it does not exist.

    Raises:
        TraceFolderError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceFolderError(
            f"rank {rank}: cannot make the folder '{folder}': {error.strerror}",
            hint="choose a folder that this user may write to.",
        ) from None


def open_trace(
    path: Path,
    rank: int,
    world_size: int,
    run_id: bytes,
    *,
    overwrite: bool,
    capacity_mb: float,
    **options: Any,
) -> _native.Recorder:
    """Creates a rank's trace.

    Raises:
        TraceExistsError: a trace exists, and it is not to be overwritten.
        TraceFolderError: it cannot be made.
    """
    _require_room(rank, capacity_mb)
    try:
        return _native.Recorder(
            path=str(path),
            rank=rank,
            world_size=world_size,
            run_id=run_id,
            capacity_bytes=int(capacity_mb * 2**20),
            overwrite=overwrite,
            **options,
        )
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise TraceExistsError(
                f"rank {rank}: there is a trace already: '{path}'.",
                hint="give each run a folder of its own, or Recorder(..., overwrite=True) to replace it.",
            ) from None
        hint = "check the folder's permissions and that it is on a local disk."
        if error.errno == errno.ENOSPC:
            hint = f"free {capacity_mb:g} MiB, or make the trace smaller with Recorder(..., capacity_mb=...)."
        raise TraceFolderError(f"rank {rank}: {error.strerror}", hint=hint) from None


def _require_room(rank: int, capacity_mb: float) -> None:
    """Refuses a trace that is larger than this process's files may be: the system may end a process that tries.

    Python ignores its signal, SIGXFSZ, but a script may give that its meaning back.
    """
    limit = largest_file()
    if limit < capacity_mb * 2**20 + _BESIDE_BYTES:
        raise TraceFolderError(
            f"rank {rank}: cannot reserve space for a trace of {capacity_mb:g} MiB: the files of this process may "
            f"have {limit:.0f} bytes.",
            hint="raise `ulimit -f`, or make the trace smaller with Recorder(..., capacity_mb=...).",
        )


def warn_of_loss(path: Path, rank: int) -> None:
    """Warns, in the name of the code that records, that the trace is lost and the training is not."""
    with suppress(RuntimeWarning):  # of a script that makes errors of warnings
        warnings.warn(
            f"rank {rank}: the trace '{path}' was cut short or written over by another program, or its disk "
            "failed: recording has stopped, training goes on. A report knows at most the records from before. To "
            "keep a trace, let nothing write to the run's folder but the ranks; copying from it does no harm.",
            RuntimeWarning,
            stacklevel=4,
        )


def unusable(path: Path, rank: int, owner: int | None, what: str) -> RecorderClosedError:
    """The error for `what`, done with a closed recorder; `owner`: in a forked child of the process that owns it."""
    if owner is not None:
        return RecorderClosedError(
            f"rank {rank}: the recorder of '{path}' is that of process {owner}, of which this one is a forked child; "
            f"cannot {what}.",
            hint="record in the process that made the recorder.",
        )
    return RecorderClosedError(
        f"rank {rank}: the recorder of '{path}' is closed; cannot {what}.",
        hint="keep it open as long as the model trains; to stop recording earlier, call recorder.pause().",
    )
