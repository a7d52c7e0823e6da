"""A comparison on the terminal, and as one self-contained HTML page."""

from __future__ import annotations

from typing import TextIO

from rich.text import Text

from pyddpdiag.bench.compare.charts import charts
from pyddpdiag.bench.compare.comparison import Comparison
from pyddpdiag.bench.compare.tables import tables
from pyddpdiag.model.words import listed
from pyddpdiag.report.page import Paragraph, Section
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.report.screen import screen_for


def page(comparison: Comparison) -> str:
    """The page: charts, then all tables, then what limits the comparison."""
    title = "Comparison of " + " and ".join(one.label for one in comparison.series)
    notes: list[Paragraph] = [Paragraph(note) for note in comparison.notes]
    only = [
        Paragraph(f"Only in {where}: {', '.join(cases)}.", dim=True)
        for where, cases in comparison.only.items()
    ]
    parts: list[Section] = [
        Section("Charts", [*notes, *charts(comparison)]),
        Section("Tables", tables(comparison)),
    ]
    if only:
        parts.append(Section("Not compared", only))
    return whole_page(title, parts)


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
