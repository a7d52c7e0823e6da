"""Files into which a rank saved something with `torch.save`: a part of its sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyddpdiag.model.untrusted import LATEST_NS, needed_list, needed_text, needed_whole

FILES: Final = 32
"""Files that are kept, the first ones; a training may write one per epoch."""

SPANS: Final = 32
"""Saves of a file that are kept with their times, the first ones."""

_NAME_LIMIT: Final = 300


@dataclass(frozen=True)
class Saved:
    """A file, and when this rank saved into it.

    Attributes:
        file: equal on two ranks of one machine if path and file are the same.
        name: of the file, without its folder.
        where: the line of the script that saved it first; empty: not known.
        times: how often it was saved.
        spans: begin and end of the first saves, nanoseconds of the recorder's clock.
    """

    file: str
    name: str
    where: str = ""
    times: int = 0
    spans: tuple[tuple[int, int], ...] = ()


def saved_to_json(one: Saved) -> dict[str, Any]:
    """The entry of a sidecar."""
    return {
        "file": one.file,
        "name": one.name,
        "where": one.where,
        "times": one.times,
        "spans_ns": [list(span) for span in one.spans],
    }


def saved_from_json(entry: Mapping[str, Any]) -> Saved:
    """What can be understood of it.

    Raises:
        TypeError, ValueError, KeyError: it is none.
    """
    file = needed_text(entry["file"], _NAME_LIMIT)
    if not file:
        raise ValueError("no file")
    return Saved(
        file,
        needed_text(entry["name"], _NAME_LIMIT),
        needed_text(entry["where"], _NAME_LIMIT),
        needed_whole(entry["times"]),
        tuple(_span(pair) for pair in needed_list(entry["spans_ns"], SPANS)),
    )


def _span(pair: Any) -> tuple[int, int]:
    begin, end = (needed_whole(each, LATEST_NS) for each in needed_list(pair, 2))
    if end < begin:
        raise ValueError("no span")
    return begin, end


__all__ = ["FILES", "SPANS", "Saved", "saved_from_json", "saved_to_json"]
