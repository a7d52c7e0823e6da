"""The account as a stacked bar of letters for each rank, for a terminal and for a file alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rich.text import Text

from pyddpdiag.report.charts.colours import colour, ink_on
from pyddpdiag.report.stacked_bar import stacked_bar

MOST: Final = 96

SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "start-up": ("s", "imports"),
    "first step": ("f", "forward"),
    "compute": ("c", "compute"),
    "asleep": ("z", "blocked"),
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


def life_bars(rows: Mapping[str, Mapping[str, float]], width: int) -> list[Text]:
    """A line with the bar of each row, the longest of `MOST` characters, and one that says what the letters stand for.

    Args:
        rows: by their labels, seconds by the names of `SIGNS`, in their order.
        width: characters that a line may take.
    """
    label = max(len(name) for name in rows)
    longest = max(sum(parts.values()) for parts in rows.values())
    bars = [
        stacked_bar(
            ((seconds, SIGNS[name][0], _style(name)) for name, seconds in parts.items()),
            longest,
            min(MOST, width - label - 2),
        )
        for parts in rows.values()
    ]
    return [*(Text(name.ljust(label + 2)) + bar for name, bar in zip(rows, bars, strict=True)), _legend(bars)]


def _legend(bars: Iterable[Text]) -> Text:
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
