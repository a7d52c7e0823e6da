"""Runs of one name, and attempts of one job below the folder of the first: a launcher may restart its ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"attempt-([1-9][0-9]{0,5})")


def numbered(named: Path, number: int) -> Path:
    """The `number`-th run of this name: in `today`, `today-2`, `today-3` ..."""
    return named if number == 1 else named.with_name(f"{named.name}-{number}")


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
