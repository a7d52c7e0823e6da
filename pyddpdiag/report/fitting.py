"""How a table is fitted into a width, wherever it is shown as text: texts give way, numbers never do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from pyddpdiag.report.table import Cell, Table

GAP: Final = 2
"""Blanks between two columns."""

GOOD_TEXT: Final = 24
"""A text of this width is read with ease."""

_LEAST_TEXT: Final = 8
_LADDER: Final = ((False, GOOD_TEXT), (True, GOOD_TEXT), (True, 16))
"""How narrow texts may be, and whether headings of numbers may be broken: what is tried in turn."""

_LONGEST_WORD: Final = 16
"""A longer one is broken rather than any number cut."""


def natural(name: str, cells: Sequence[Cell]) -> int:
    """The width that a column takes if nothing is short."""
    heading = 0 if name.startswith(" ") else cell_len(name)
    return max([heading, *(cell_len(_plain(cell)) for cell in cells)])


def fitted(table: Table, width: int) -> list[dict[str, int]]:
    """The width of each column, in one block or in several if even texts as narrow as they can be do not make room.

    First texts are narrowed, the widest ones most, then the headings of numbers are broken into lines, then texts are
    narrowed further. What does not fit then goes into another block, which begins with the first column again.
    """
    names = list(table.columns)
    whole = _block(table, names, width)
    return (
        [whole]
        if whole is not None
        else [_forced(table, some, width) for some in _parted(table, names, width)]
    )


def _block(table: Table, names: Sequence[str], width: int) -> dict[str, int] | None:
    return next(
        (found for step in _LADDER if (found := _widths(table, names, width, *step)) is not None), None
    )


def _forced(table: Table, names: Sequence[str], width: int) -> dict[str, int]:
    found = _block(table, names, width) or _widths(table, names, width, True, _LEAST_TEXT)
    # A single number may be wider than the screen: the terminal breaks its line.
    return found or {name: _least(table, name, True, _LEAST_TEXT) for name in names}


def _widths(
    table: Table, names: Sequence[str], width: int, broken: bool, least: int
) -> dict[str, int] | None:
    """The widths of these columns; None if they do not fit."""
    lows = {name: _least(table, name, broken, least) for name in names}
    # The widest gives way first: all texts are as wide as they like, up to one width for all.
    whole = {name: natural(name, table.columns[name]) if _is_text(table, name) else 0 for name in names}
    for most in range(width, least - 1, -1):
        found = {name: max(lows[name], min(whole[name], most)) for name in names}
        if sum(found.values()) + GAP * len(names) <= width:
            return found
    return None


def _parted(table: Table, names: Sequence[str], width: int) -> Iterator[list[str]]:
    """The columns by block."""
    key, *others = names
    block = [key]
    for name in others:
        if len(block) > 1 and _block(table, [*block, name], width) is None:
            yield block
            block = [key]
        block.append(name)
    yield block


def _least(table: Table, name: str, broken: bool, least: int) -> int:
    """What a column needs at least: a number all of it, a text its words up to a length."""
    cells = table.columns[name]
    whole = natural(name, cells)
    if _is_text(table, name):
        words = max((cell_len(word) for word in _words(name, cells)), default=0)
        return min(whole, max(least, min(words, _LONGEST_WORD)))
    if not broken:
        return whole
    return max([*map(cell_len, name.split()), *(cell_len(_plain(cell)) for cell in cells), 1])


def _words(name: str, cells: Sequence[Cell]) -> Iterator[str]:
    yield from name.split()
    for cell in cells:
        yield from _plain(cell).split()


def _is_text(table: Table, name: str) -> bool:
    return table.is_text(list(table.columns).index(name), name)


def _plain(cell: Cell) -> str:
    return cell.plain if isinstance(cell, Text) else cell
