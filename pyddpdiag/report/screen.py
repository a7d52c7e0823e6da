"""What the target can show: its width, and which characters its encoding has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

NARROWEST: Final = 80
WIDEST: Final = 110
PIPED: Final = 110

INDENT: Final = 2
GAP: Final = 2
"""Blanks between two columns."""

PLAIN: Final = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""SIMPLE_HEAD for code pages that lack its lines."""

_FANCY: Final = "─━│█▓░…·±"


@dataclass(frozen=True)
class Screen:
    """A console and the signs that may be used on it."""

    console: Console
    fancy: bool
    encoding: str

    def text(self, text: str) -> str:
        """`text` with what the encoding lacks replaced."""
        return text.encode(self.encoding, "replace").decode(self.encoding)

    def print(self, text: Text, indent: int = 0) -> None:
        """Print text, wrapped and indented; what the encoding lacks is replaced."""
        text.plain = self.text(text.plain)
        # rich's Padding would fill every line with blanks to the right edge.
        for line in text.wrap(self.console, self.console.width - indent):
            line.rstrip()
            self.console.print(Text(" " * indent) + line, soft_wrap=True)

    def table(
        self, title: str, columns: Mapping[str, Sequence[str | Text]], texts: int, dim: Sequence[bool]
    ) -> None:
        """Print a table of columns by their names; the first `texts` are text, the others numbers.

        A column whose name begins with a blank shows no name and is text. `dim` tells which rows to dim.
        """
        table = Table(
            box=box.SIMPLE_HEAD if self.fancy else PLAIN,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            header_style="dim",
        )
        for place, name in enumerate(columns):
            left = place < texts or name.startswith(" ")
            table.add_column(
                self.text(name.strip() if not name.startswith(" ") else ""),
                justify="left" if left else "right",
                no_wrap=True,
                overflow="crop",
            )
        for row, is_dim in zip(zip(*columns.values(), strict=True), dim, strict=True):
            table.add_row(*row, style="dim" if is_dim else None)
        self.console.print()
        self.print(Text(title, "bold"), INDENT)
        self.console.print(Padding(table, (0, 0, 0, INDENT), expand=False))

    def room(self, columns: Mapping[str, Sequence[str | Text]]) -> int:
        """How many characters a table of these columns would leave free; negative if it doesn't fit."""
        widths = [
            max([0 if name.startswith(" ") else len(name), *(len(cell) for cell in cells)])
            for name, cells in columns.items()
        ]
        return self.console.width - INDENT - sum(widths) - GAP * len(widths)

    def fit(self, columns: dict[str, Sequence[str | Text]], spare: Sequence[str], free: int = 0) -> None:
        """Drop columns in the order of `spare` until the table leaves `free` characters."""
        for name in spare:
            if self.room(columns) >= free:
                return
            columns.pop(name, None)

    def sign(self, fancy: str, plain: str) -> str:
        """The sign if it can be shown, else its ASCII stand-in."""
        return fancy if self.fancy else plain

    def cut(self, text: str, width: int) -> str:
        """`text` in at most `width` characters, with an ellipsis where it was longer."""
        dots = self.sign("…", "..")
        return self.text(text if len(text) <= width else text[: max(0, width - len(dots))] + dots)


def screen_for(file: TextIO) -> Screen:
    """Look at a stream; it may be a terminal, a pipe or a file, on any code page."""
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
