"""The folder of the trace: its default name, and traces of earlier runs in it."""

from __future__ import annotations

import re
import time
from pathlib import Path

from pyddpdiag.errors import TraceExistsError, TraceFolderError
from pyddpdiag.train.summary import FILE

_TRACE_FILE = re.compile(r"rank_(\d+)\.(ddptrace|json|lines)")


def default_folder(parent: Path = Path("runs")) -> Path:
    """`runs/<local time>`, with a number after it if that is taken."""
    name = time.strftime("%Y%m%d-%H%M%S")
    folder, number = parent / name, 2
    while folder.exists():
        folder, number = parent / f"{name}-{number}", number + 1
    return folder


def existing(folder: Path) -> dict[int, list[Path]]:
    """The files of traces in the folder, by rank; empty if there is no such folder."""
    found: dict[int, list[Path]] = {}
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            match = _TRACE_FILE.fullmatch(path.name)
            if match:
                found.setdefault(int(match.group(1)), []).append(path)
    return found


def prepare(folder: Path, *, force: bool, mine: range) -> None:
    """Prepares the folder for the ranks in `mine`, so that no trace of another run stays beside theirs.

    Args:
        folder: made if it is missing.
        force: delete the traces of those ranks.
        mine: the ranks that the caller handles.

    Raises:
        TraceExistsError: there is a trace of those ranks, and `force` is not given.
        TraceFolderError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = [path for rank, paths in existing(folder).items() if rank in mine for path in paths]
        if old and not force:
            raise TraceExistsError(
                f"A trace is in {folder} already ({old[0].name}).",
                hint="choose another --trace, or add --force.",
            )
        for path in old:
            path.unlink(missing_ok=True)
        if 0 in mine:
            # Of the training that was here before.
            (folder / FILE).unlink(missing_ok=True)
    except TraceExistsError:
        raise
    except OSError as error:
        raise TraceFolderError(
            f"The trace's folder {folder} cannot be used: {error.strerror or error}.",
            hint="choose another --trace.",
        ) from error
