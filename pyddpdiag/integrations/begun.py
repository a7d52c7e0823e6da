"""A process that is a rank before it says so, and where it notes what it does before it trains."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyddpdiag.start.note import StartNoteFile, place_of

if TYPE_CHECKING:
    from pyddpdiag.record.set_up import SetUp

RANK: Final = "PYDDPDIAG_RUN_RANK"
"""The environment variable in which a rank leaves its numbers for the processes that it starts: they are not this
rank, though they have its other variables."""

_NUMBERS: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


def launched_as_rank(environ: MutableMapping[str, str]) -> bool:
    """Whether a launcher started this process as a rank; whatever this one starts from now on is none.

    A machine's launcher may have the first two numbers, and has no local rank.
    """
    which = " ".join(environ.get(name, "") for name in _NUMBERS)
    if len(which.split()) < len(_NUMBERS) or environ.get(RANK) == which:
        return False
    environ[RANK] = which
    return True


def given_rank(arguments: Sequence[Any], options: Mapping[str, Any]) -> tuple[int, int]:
    """This process's rank and how many there are, as `init_process_group` is told; -1 where it is not."""
    given = dict(zip(("", "", "", "world_size", "rank"), arguments, strict=False)) | dict(options)

    def number(name: str) -> int:
        value, text = given.get(name, -1), os.environ.get(name.upper(), "")
        if isinstance(value, int) and value >= 0:
            return value
        return int(text) if text.isascii() and text.isdigit() else -1

    return number("rank"), number("world_size")


def notes(looks: SetUp, folder: str, rank: int, world_size: int) -> None:
    """Lets these looks say beside the traces where the rank is, until it has one.

    Args:
        looks: at this process.
        folder: of the run; empty: the ranks have yet to agree on one.
        rank, world_size: of this process; -1: not known.
    """
    if looks.note is None and folder and 0 <= rank < world_size:
        looks.note = StartNoteFile(place_of(Path(folder), rank), rank, world_size)
        atexit.register(_ends, looks)


def _ends(looks: SetUp) -> None:
    """The process comes to its end: without an error, there is nothing to tell of its start."""
    if looks.is_here and looks.note is not None and not looks.note.failed:
        looks.close()
