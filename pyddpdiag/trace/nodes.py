"""Reads the notes that `pyddpdiag run` leaves on each machine. Optional and never trusted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyddpdiag.model.attempts import attempt_number
from pyddpdiag.model.node import NOTE_BYTES, NodeNote, node_of, parse_note
from pyddpdiag.system.regular_file import RegularFile

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
    found = (read_note(place / name) for name in names)
    return NodeNotes(tuple(note for note in found if note is not None), time.time())


def is_over(folder: Path) -> bool:
    """Whether a run that began in a folder has noted its end there, on any machine; False: nothing says so."""
    return any(note.exit_code is not None for note in read_nodes(folder).notes)


def read_note(path: Path) -> NodeNote | None:
    """One note; None: it cannot be read, or is none."""
    node = node_of(path.name)
    if node is None:
        return None
    try:
        with RegularFile(path) as file:
            return parse_note(node, file.read(0, NOTE_BYTES))
    except OSError:
        return None
