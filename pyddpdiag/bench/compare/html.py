"""A comparison as one page of HTML that needs nothing else. All text from files is escaped."""

from __future__ import annotations

from html import escape

from pyddpdiag.bench.compare.comparison import Comparison
from pyddpdiag.bench.compare.tables import Table, tables

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #8884; }
.text { text-align: left; } .dim { opacity: .65; } svg { max-width: 100%; height: auto; }
"""


def page(comparison: Comparison, svg: str) -> str:
    """The page; `svg` is the chart, which is put in as it is."""
    parts = [_table(table) for table in tables(comparison)]
    parts += [f"<p>{escape(note)}</p>" for note in comparison.notes]
    for where, cases in comparison.only.items():
        parts.append(f'<p class="dim">Only in {escape(where)}: {escape(", ".join(cases))}.</p>')
    body = "\n".join(parts)
    title = escape(" and ".join(one.label for one in comparison.series))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{svg}\n{body}\n</body>\n</html>\n"
    )


def _table(table: Table) -> str:
    names = list(table.columns)
    sides = [
        ' class="text"' if i < table.texts or name.startswith(" ") else "" for i, name in enumerate(names)
    ]
    head = "".join(f"<th{side}>{escape(name.strip())}</th>" for side, name in zip(sides, names, strict=True))
    rows = []
    for cells, dim in zip(zip(*table.columns.values(), strict=True), table.dim, strict=True):
        inside = "".join(f"<td{side}>{escape(cell)}</td>" for side, cell in zip(sides, cells, strict=True))
        rows.append(_row(inside, dim))
    note = f'<p class="dim">{escape(table.note)}</p>' if table.note else ""
    body = "\n".join(rows)
    return f"<h2>{escape(table.title)}</h2>\n<table>\n<tr>{head}</tr>\n{body}\n</table>\n{note}"


def _row(inside: str, dim: bool) -> str:
    return f'<tr class="dim">{inside}</tr>' if dim else f"<tr>{inside}</tr>"
