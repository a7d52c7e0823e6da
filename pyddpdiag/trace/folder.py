"""Which files of a folder are the traces of a run: those named rank_<number>.ddptrace, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pyddpdiag.errors import TraceError
from pyddpdiag.model.words import listed

SUFFIX: Final = ".ddptrace"
NAMED_RANKS: Final = 16

# As the recorder writes the name. No rank has more than seven digits.
_NAME: Final = re.compile(r"rank_(0|[1-9][0-9]{0,6})\.ddptrace")


def number_of(path: Path) -> int | None:
    """The rank that a trace file is named after; None if it does not have a trace's name."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else None


def folder_of(path: Path) -> Path:
    """The folder of a run: what was given, or where one rank's trace lies that was given instead."""
    return path.parent if path.suffix == SUFFIX and path.is_file() else path


def find_traces(folder: Path) -> tuple[list[Path], list[str]]:
    """The trace files of a folder, sorted by the number in their names, and what else looks like one.

    Raises:
        TraceError: there is no folder, or no trace in it.
    """
    try:
        if folder.is_file() and folder.suffix == SUFFIX:
            raise TraceError(
                f"{folder}: is one rank's trace.", hint=f"give the folder of all ranks: {folder.parent}"
            )
        if not folder.is_dir():
            raise TraceError(
                f"{folder}: no such folder.", hint="give the folder that the Recorder wrote into."
            )
        named_so = [path for path in folder.iterdir() if path.suffix == SUFFIX]
        files = {number: path for path in named_so if (number := number_of(path)) is not None}
        below = [] if files else sorted({path.parent for path in folder.glob(f"*/rank_*{SUFFIX}")})[:3]
    except OSError as error:
        raise TraceError(f"{folder}: cannot be read: {error.strerror or error}.") from error
    others = sorted(path.name for path in named_so if number_of(path) is None)
    other = (
        f"only files named rank_<number>{SUFFIX} are read, and not {listed(others, NAMED_RANKS)}."
        if others
        else ""
    )
    if not files:
        hint = "did you mean " + " or ".join(map(str, below)) + "?" if below else other
        raise TraceError(
            f"{folder}: no traces (rank_<N>{SUFFIX}) in this folder.",
            hint=hint or "record some first: pyddpdiag train --trace DIR, or a Recorder in your script.",
        )
    return [files[number] for number in sorted(files)], [other] if other else []
