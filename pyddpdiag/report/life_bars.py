"""The account as a stacked bar of letters for each rank, for a terminal and for a file alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rich.text import Text

from pyddpdiag.report.charts.colours import colour, ink_on

SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "start-up": ("s", "imports"),
    "first step": ("f", "forward"),
    "computes": ("c", "compute"),
    "sleeps": ("z", "blocked"),
    "core": ("q", "core"),
    "data": ("d", "data"),
    "wire": ("w", "wire"),
    "ranks": ("r", "late"),
    "collectives": ("o", "other"),
    "between": ("b", "between"),
    "waits between": ("h", "calls"),
    "tail": ("t", "tail"),
    "not known": ("?", "rest"),
}
"""By the columns of `short_table`: a letter, for who sees no colours, and the colour that pictures have for it."""


def bar(parts: Mapping[str, float], longest: float, width: int) -> Text:
    """A stacked bar.

    Args:
        parts: seconds by the names of `SIGNS`, in their order.
        longest: seconds that take all of the width.
        width: in characters.
    """
    drawn, end, found = 0, 0.0, Text()
    for name, seconds in parts.items():
        # Rounding the running end keeps the whole bar to scale.
        end += seconds
        cells = round(width * end / longest) - drawn if longest > 0.0 else 0
        drawn += cells
        found.append(SIGNS[name][0] * cells, _style(name))
    return found


def legend(bars: Iterable[Text]) -> Text:
    """What the letters of these bars stand for."""
    drawn = {letter for each in bars for letter in each.plain}
    found = Text("Bars:")
    for name, (letter, _) in SIGNS.items():
        if letter in drawn:
            found.append(", " if len(found) > len("Bars:") else " ")
            found.append(letter, _style(name))
            found.append(f" {name}")
    return found


def _style(name: str) -> str:
    background = colour(SIGNS[name][1])
    return f"{ink_on(background)} on {background}"


__all__ = ["SIGNS", "bar", "legend"]
