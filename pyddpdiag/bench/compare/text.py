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
        screen.table(table)
    for note in comparison.notes:
        screen.console.print()
        screen.print(Text(note, "yellow"), 2)
    for where, cases in comparison.only.items():
        screen.console.print()
        screen.print(Text(f"Only in {where}: {listed(cases, 4)}.", "dim"), 2)
