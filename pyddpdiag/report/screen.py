"""What the output can show: its width, the characters of its encoding, and how tables are fitted into it.

Texts give way where a table is too wide; numbers never do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from pyddpdiag.output import clean, clean_lines
from pyddpdiag.report.tables import Cell, Table

NARROWEST: Final = 40
WIDEST: Final = 110
PIPED: Final = 110

INDENT: Final = 2
PLAIN: Final = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""SIMPLE_HEAD for code pages that lack its lines."""

_FANCY: Final = "─━│█▓░…·±"


@dataclass(frozen=True)
class Screen:
    """A console and the signs that it can show."""

    console: Console
    fancy: bool
    encoding: str

    def text(self, text: str) -> str:
        """`text` as it can be shown: cleaned, and with characters replaced that the encoding lacks. The
        length stays the same."""
        return clean_lines(text).encode(self.encoding, "replace").decode(self.encoding)

    def _cell(self, cell: Cell) -> Cell:
        """A cell as it can be shown, in one line."""
        if isinstance(cell, str):
            return self.text(clean(cell))
        shown = cell.copy()
        shown.plain = self.text(clean(cell.plain))
        return shown

    def print(self, text: Text, indent: int = 0) -> None:
        """Print text, wrapped and indented; replaces characters that the encoding lacks."""
        text.plain = self.text(text.plain)
        # rich's Padding would fill every line with blanks to the right edge.
        for line in text.wrap(self.console, self.console.width - indent):
            line.rstrip()
            self.console.print(Text(" " * indent) + line, soft_wrap=True)

    def print_whole(self, text: str, indent: int) -> None:
        """Print each line in one piece, however long, so that it can be copied."""
        for line in text.splitlines():
            self.console.print(Text(" " * indent + self.text(line)), soft_wrap=True)

    def table(self, table: Table) -> None:
        """Print a table, as `grids` fits it into the width."""
        self.console.print()
        self.print(Text(table.title, "bold"), INDENT)
        for place, grid in enumerate(self.grids(table)):
            if place:
                self.console.print()
            self.console.print(Padding(grid, (0, 0, 0, INDENT), expand=False))
        if table.note:
            self.print(Text(table.note, "dim"), INDENT)

    def grids(self, table: Table) -> list[Grid]:
        """The table as it is drawn: whole, or in blocks one below the other.

        Texts give way where it is too wide: they are broken into lines. No number is ever cut.
        """
        columns: dict[str, Sequence[Cell]] = {
            name: [self._cell(cell) for cell in cells] for name, cells in table.columns.items()
        }
        shown = replace(table, columns=columns)
        blocks = fitted(shown, self.console.width - INDENT)
        return [self._grid(shown, widths) for widths in blocks]

    def _grid(self, table: Table, widths: Mapping[str, int]) -> Grid:
        grid = Grid(
            box=box.SIMPLE_HEAD if self.fancy else PLAIN,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            header_style="dim",
        )
        for place, name in enumerate(table.columns):
            if name in widths:
                grid.add_column(
                    self.text(name if not name.startswith(" ") else ""),
                    justify="left" if table.is_text(place, name) else "right",
                    vertical="top",
                    width=widths[name],
                    overflow="fold",
                )
        chosen = {name: table.columns[name] for name in table.columns if name in widths}
        for cells, is_dim in replace(table, columns=chosen).rows():
            grid.add_row(*cells, style="dim" if is_dim else None)
        return grid

    def room(self, columns: Mapping[str, Sequence[Cell]]) -> int:
        """How many characters a table with these columns leaves free; negative if it doesn't fit.

        A text without a name, which can be broken into lines, is not what others have to leave for.
        """
        widths = [
            min(natural(name, cells), GOOD_TEXT) if name.startswith(" ") else natural(name, cells)
            for name, cells in columns.items()
        ]
        return self.console.width - INDENT - sum(widths) - GAP * len(widths)

    def fit(self, columns: dict[str, Sequence[Cell]], spare: Sequence[str], free: int = 0) -> None:
        """Drop columns in the order of `spare` until the table leaves `free` characters."""
        for name in spare:
            if self.room(columns) >= free:
                return
            columns.pop(name, None)

    def sign(self, fancy: str, plain: str) -> str:
        """The sign if it can be shown, else its ASCII stand-in."""
        return fancy if self.fancy else plain

    def cut(self, text: str, width: int) -> str:
        """`text` in at most `width` characters, with an ellipsis if it was longer."""
        dots = self.sign("…", "..")
        return self.text(text if len(text) <= width else text[: max(0, width - len(dots))] + dots)


def screen_for(file: TextIO) -> Screen:
    """The screen for a stream, which may be a terminal, a pipe or a file, on any code page."""
    console = Console(file=file, highlight=False, emoji=False, markup=False, soft_wrap=False)
    if console.is_terminal:
        console.width = min(max(console.width, NARROWEST), WIDEST)
    else:
        console.width = PIPED
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        _FANCY.encode(encoding)
        fancy = True
    except (UnicodeEncodeError, LookupError):
        fancy = False
    try:
        "".encode(encoding)
    except LookupError:
        encoding = "ascii"
    return Screen(console, fancy, encoding)


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
