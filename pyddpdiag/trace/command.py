"""Reads what `pyddpdiag run` notes of its command's end. Optional and never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pyddpdiag.model.attempts import attempt_number
from pyddpdiag.model.command import NAME, CommandEnd
from pyddpdiag.output import clean
from pyddpdiag.system.regular_file import RegularFile

_LIMIT: Final = 2**16


def read_command(folder: Path) -> CommandEnd | None:
    """How the command ended whose ranks recorded into `folder`, or into it after a restart; None: not known."""
    for place in (folder, folder.parent) if attempt_number(folder.name) is not None else (folder,):
        try:
            with RegularFile(place / NAME) as file:
                raw = json.loads(file.read(0, _LIMIT))
            code, signal = raw["exit_code"], raw.get("signal", "")
            times = [raw.get(name, 0.0) for name in ("signal_s", "left_s")]
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            continue
        if (
            isinstance(code, int)
            and isinstance(signal, str)
            and all(isinstance(at, (int, float)) and 0 <= at < 1e11 for at in times)
        ):
            return CommandEnd(code, clean(signal, 16), *map(float, times))
    return None


__all__ = ["read_command"]
