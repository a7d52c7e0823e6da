"""What the output can show: its width, and the characters of its encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TextIO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from pyddpdiag.output import clean, clean_lines
from pyddpdiag.report.fitting import GAP, GOOD_TEXT, fitted, natural
from pyddpdiag.report.table import Cell, Table

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
