"""Reads what our commands note beside traces: their end, a training's losses, a trial. Optional and never trusted."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyddpdiag.model.attempts import attempt_number
from pyddpdiag.model.command import NAME as COMMAND
from pyddpdiag.model.command import CommandEnd
from pyddpdiag.model.details import Loss
from pyddpdiag.model.fields import maybe_from_json
from pyddpdiag.model.node import NOTE_BYTES, NodeNote, node_of
from pyddpdiag.model.tried import NAME as TRIAL
from pyddpdiag.model.tried import Tried, tried_from_json
from pyddpdiag.system.regular_file import RegularFile

LOSSES: Final = "training.json"
_LIMIT: Final = 2**22
_EPOCHS: Final = 10_000


def read_note(path: Path, limit: int = _LIMIT) -> Any:
    """The JSON in a file of so many bytes at most; None: there is none."""
    try:
        with RegularFile(path) as file:
            return json.loads(file.read(0, limit))
    except (OSError, ValueError, RecursionError):
        return None


def read_command(folder: Path) -> CommandEnd | None:
    """How the command of `pyddpdiag run` ended whose ranks recorded into `folder`, or into it after a restart."""
    places = (folder, folder.parent) if attempt_number(folder.name) is not None else (folder,)
    found = (maybe_from_json(CommandEnd, read_note(place / COMMAND)) for place in places)
    return next((end for end in found if end is not None), None)


def read_loss(folder: Path) -> Loss | None:
    """The losses of the training that recorded into this folder; None if none were written, or they cannot be read."""
    try:
        epochs = [epoch for epoch in read_note(folder / LOSSES)["epochs"] if isinstance(epoch, dict)][
            :_EPOCHS
        ]
    except (KeyError, TypeError):
        return None
    elapsed, at = [], 0.0
    for epoch in epochs:
        at += _number(epoch.get("seconds")) or 0.0
        elapsed.append(at)
    columns = {
        name: tuple(_number(epoch.get(name)) for epoch in epochs)
        for name in ("train_loss", "test_loss", "accuracy")
    }
    return Loss(epoch=tuple(range(1, len(epochs) + 1)), elapsed_s=tuple(elapsed), **columns)


def _number(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) and abs(value) < 1e12 else None


def read_trial(folder: Path) -> Tried | None:
    """The trial whose starts have their folders in this one; None: there was none, or it cannot be read."""
    return tried_from_json(read_note(folder / TRIAL))


def start_to_show(folder: Path) -> Path | None:
    """The folder of the newest start with the setting as it is, in a trial's folder without traces of its own."""
    try:
        if any(folder.glob("rank_*.ddptrace")):
            return None
        return max(
            (each for each in folder.glob("start-*-as-it-is") if any(each.glob("**/rank_*.ddptrace"))),
            default=None,
        )
    except OSError:
        return None


_MOST: Final = 16384


@dataclass(frozen=True)
class NodeNotes:
    """The notes in a run's folder, sorted by node, and when they were read, in seconds since 1970."""

    notes: tuple[NodeNote, ...] = ()
    read_s: float = 0.0


def read_nodes(folder: Path) -> NodeNotes:
    """The notes of all machines that recorded into `folder`, or into it after a restart."""
    place = folder.parent if attempt_number(folder.name) is not None else folder
    try:
        names = sorted(path.name for path in place.iterdir() if node_of(path.name) is not None)[:_MOST]
    except OSError:
        return NodeNotes()
    found = (read_node(place / name) for name in names)
    return NodeNotes(tuple(filter(None, found)), time.time())


def is_over(folder: Path) -> bool:
    """Whether a run that began in a folder has noted its end there, on any machine; False: nothing says so."""
    return any(note.exit_code is not None for note in read_nodes(folder).notes)


def read_node(path: Path) -> NodeNote | None:
    """One note; None: it cannot be read, or is none."""
    node = node_of(path.name)
    return None if node is None else maybe_from_json(NodeNote, read_note(path, NOTE_BYTES), node=node)
