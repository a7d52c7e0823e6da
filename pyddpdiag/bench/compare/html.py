"""A comparison as one self-contained HTML page."""

from __future__ import annotations

from pyddpdiag.bench.compare.charts import charts
from pyddpdiag.bench.compare.comparison import Comparison
from pyddpdiag.bench.compare.tables import tables
from pyddpdiag.report.page import Paragraph, Section
from pyddpdiag.report.page import page as whole_page


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
