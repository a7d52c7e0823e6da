"""Values of a JSON file that anybody may have written: what does not fit is nothing, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyddpdiag.output import clean

LATEST_NS: Final = 2**61
"""No clock of the records counts further."""


def text(raw: Mapping[str, Any], key: str, limit: int) -> str:
    """A text without what could control a terminal, and of so many characters at most; else empty."""
    value = raw.get(key, "")
    return clean(value, limit) if isinstance(value, str) else ""


def whole(value: Any) -> int:
    """A whole number of 63 bits that is not negative; else 0."""
    return value if _is_whole(value, 2**63) else 0


def time_ns(value: Any) -> int:
    """A time of the records' clock that can be right; else 0."""
    return value if _is_whole(value, LATEST_NS + 1) else 0


def number(value: Any, below: float = 1e12) -> float | None:
    """A number that is not negative; else None."""
    # A bool is an int to Python, and a NaN would not survive the way to JSON.
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < below
    return float(value) if known else None


def needed_text(value: Any, limit: int) -> str:
    """As `text`.

    Raises:
        TypeError: it is no text.
    """
    if not isinstance(value, str):
        raise TypeError("no text")
    return clean(value, limit)


def needed_whole(value: Any, below: int = 2**63) -> int:
    """A whole number that is not negative.

    Raises:
        ValueError: it is none, or not below that.
    """
    if not _is_whole(value, below):
        raise ValueError("no whole number that fits")
    return int(value)


def needed_number(value: Any, below: float) -> float:
    """A number that is not negative.

    Raises:
        ValueError: it is none, or not below that.
    """
    found = number(value, below)
    if found is None:
        raise ValueError("no number that fits")
    return found


def needed_list(value: Any, limit: int) -> list[Any]:
    """A list of so many entries at most.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, list) or len(value) > limit:
        raise TypeError("not a list, or a huge one")
    return value


def _is_whole(value: Any, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below
