"""A comparison on the terminal."""

from __future__ import annotations

from typing import TextIO

from rich.text import Text

from pyddpdiag.bench.compare.comparison import Comparison
from pyddpdiag.bench.compare.tables import tables
from pyddpdiag.model.words import listed
from pyddpdiag.report.screen import screen_for


def print_comparison(comparison: Comparison, file: TextIO) -> None:
    """Prints all tables, and what could not be compared."""
    screen = screen_for(file)
    for table in tables(comparison):
        columns: dict[str, list[str | Text]] = {
            name: [screen.text(cell) for cell in cells] for name, cells in table.columns.items()
        }
        # Wide cells would be cropped: the ratio matters more than a case's full name.
        room = screen.room(columns)
        if room < 0:
            widest = max(list(columns)[: table.texts], key=lambda name: max(map(len, columns[name])))
            width = max(16, max(map(len, columns[widest])) + room)
            columns[widest] = [screen.cut(str(cell), width) for cell in columns[widest]]
        screen.table(table.title, columns, table.texts, table.dim)
        if table.note:
            screen.print(Text(table.note, "dim"), 2)
    for note in comparison.notes:
        screen.console.print()
        screen.print(Text(note, "yellow"), 2)
    for where, cases in comparison.only.items():
        screen.console.print()
        screen.print(Text(f"Only in {where}: {listed(cases, 4)}.", "dim"), 2)
