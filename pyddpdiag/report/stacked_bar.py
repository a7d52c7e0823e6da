"""A stacked bar of characters."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text


def stacked_bar(parts: Iterable[tuple[float, str, str]], longest: float, width: int) -> Text:
    """A bar of parts, each with its value, its character and its style.

    Args:
        parts: in their order.
        longest: the sum of values that takes all of the width; an empty bar where it is 0.
        width: in characters.
    """
    drawn, end, found = 0, 0.0, Text()
    for value, character, style in parts:
        # Rounding the running end keeps the whole bar to scale.
        end += value
        cells = round(width * end / longest) - drawn if longest > 0.0 else 0
        drawn += cells
        found.append(character * cells, style)
    return found
