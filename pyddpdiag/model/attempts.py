"""Attempts of one job: a launcher that restarts its ranks starts a new run, in a folder below the first one's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"attempt-([1-9][0-9]{0,5})")


def attempt_folder(folder: Path, number: int) -> Path:
    """Where attempt `number` records; number 0, the first, does so in the folder that the script names."""
    return folder / f"attempt-{number}" if number else folder


def attempt_number(name: str) -> int | None:
    """The number of the attempt that a folder is named after; None if it does not have an attempt's name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def numbers(names: Iterable[str]) -> list[int]:
    """The attempts among the names of a folder's entries, in ascending order; the first is not among them."""
    return sorted(number for name in names if (number := attempt_number(name)) is not None)
