"""Reads what `pyddpdiag try --restart` notes of its trial, beside the folders of its starts. Never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pyddpdiag.model.tried import NAME, Tried, tried_from_json
from pyddpdiag.system.regular_file import RegularFile

_LIMIT: Final = 2**20


def read_trial(folder: Path) -> Tried | None:
    """The trial whose starts have their folders in this one; None: there was none, or it cannot be read."""
    try:
        with RegularFile(folder / NAME) as file:
            return tried_from_json(json.loads(file.read(0, _LIMIT)))
    except (OSError, ValueError, RecursionError):
        return None


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


__all__ = ["read_trial", "start_to_show"]
