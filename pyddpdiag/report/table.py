"""One description of a table, for all commands: the screen prints it, a page holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

Cell = str | Text


@dataclass(frozen=True)
class Table:
    """Columns by name; the first `texts` hold text, the others numbers.

    A column whose name begins with a blank shows no name and holds text. `dim` says which rows to show
    faintly; empty: none. `note` is printed below the table.
    """

    title: str
    columns: Mapping[str, Sequence[Cell]]
    texts: int
    dim: Sequence[bool] = ()
    note: str = ""

    def is_text(self, place: int, name: str) -> bool:
        """Whether the column at `place` holds text, which is aligned to the left."""
        return place < self.texts or name.startswith(" ")

    def rows(self) -> list[tuple[tuple[Cell, ...], bool]]:
        """The cells of each row, and whether to show it faintly."""
        cells = list(zip(*self.columns.values(), strict=True))
        return list(zip(cells, self.dim or [False] * len(cells), strict=True))

    def only(self, *names: str) -> Table:
        """These of its columns."""
        texts = sum(name in names for name in list(self.columns)[: self.texts])
        return replace(self, columns={name: self.columns[name] for name in names}, texts=texts)
