"""One page of HTML, for all commands: one file that loads nothing. It cleans texts that come from files.

A policy in the page forbids the browser to load or run anything but the scripts that are in it. Its charts are pictures
that it holds, and it stays small enough to be mailed; with `zoom` Plotly draws them, from all of their numbers.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from pyddpdiag.output import as_html
from pyddpdiag.report.charts import plotly
from pyddpdiag.report.charts.chart import Chart, Choice, Heat, Spans, colour
from pyddpdiag.report.charts.svg import svg
from pyddpdiag.report.tables import Cell, Table

_PICKS: Final = "Show below:"
_KEYS: Final = "Keys: arrows move it, plus and minus zoom, 0 shows all."
SMALL: Final = 300_000
"""Bytes of a page without `zoom`, at most, whatever it is about."""

_ENOUGH: Final = 30
"""Rows of a table on such a page."""

CHOICES: Final = 3
"""Charts of one choice on such a page."""

_TABLES: Final = 180_000
"""Bytes after which such a page leaves the charts' numbers out, and after which its other parts end."""
_PARTS: Final = 270_000
_LONG: Final = 60
"""Characters of a cell that is broken into lines."""


@dataclass(frozen=True)
class Paragraph:
    """A sentence or more."""

    text: str
    dim: bool = False


@dataclass(frozen=True)
class Headline:
    """The answer in one line; `status` as of a verdict."""

    text: str
    status: str


@dataclass(frozen=True)
class Notice:
    """A finding: what was found, how sure that is, what to do, and the numbers that it rests on."""

    severity: str
    message: str
    paragraphs: Sequence[str] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """One number that matters: its name, value and what it is. `tone` is `good` or `bad` where it is one of them."""

    name: str
    value: str
    about: str
    tone: str = ""


@dataclass(frozen=True)
class Figures:
    """Numbers side by side."""

    items: Sequence[Figure]


@dataclass(frozen=True)
class Picks:
    """Buttons that pick something from the choice `chooser`; each has its key and text."""

    chooser: str
    items: Sequence[tuple[int, str]]


Part = Table | Chart | Choice | Paragraph | Headline | Notice | Picks | Figures


@dataclass(frozen=True)
class Section:
    """Parts under a heading; the page's contents link to it."""

    title: str
    parts: Sequence[Part]


def page(title: str, parts: Iterable[Part | Section], about: str = "", *, zoom: bool = False) -> str:
    """The page with these parts in order; charts without anything to draw are left out.

    `about`: a line below the title. `zoom`: its charts can be zoomed, and show all that they have.

    Raises:
        UsageError: charts are to be zoomed, and plotly is not installed.
    """
    return _Page(zoom).whole(title, list(parts), about)


class _Page:
    """Collects what the parts of one page need: numbers for ids, and the charts' data."""

    def __init__(self, zoom: bool) -> None:
        self._zoom = zoom
        self._count = 0
        self._bytes = 0
        self._figures: dict[str, Any] = {}

    def whole(self, title: str, parts: Sequence[Part | Section], about: str) -> str:
        heading = _text(title)
        body = "\n".join(map(self._counted, parts))
        scripts = [_file("page.js")] + ([plotly.script(), _file("plots.js")] if self._figures else [])
        data = json.dumps(self._figures, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        sections = [part.title for part in parts if isinstance(part, Section)]
        lead = f'\n<p class="dim">{_text(about)}</p>' if about else ""
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{heading}</title>\n<style>{_file('page.css')}</style>\n</head>\n<body>\n"
            f'<a class="skip" href="#main">Skip to the content</a>\n<header>\n<h1>{heading}</h1>{lead}\n'
            f"{_contents(sections)}</header>\n"
            f'<main id="main">\n{body}\n</main>\n'
            + (f'<script type="application/json" id="page-data">{data}</script>\n' if self._figures else "")
            + "".join(f"<script>{script}</script>\n" for script in scripts)
            + "</body>\n</html>\n"
        )

    def _full(self, bytes_: int) -> bool:
        return not self._zoom and self._bytes > bytes_

    def _counted(self, part: Part | Section) -> str:
        """A part that still has room on the page."""
        if isinstance(part, Section):
            return self._part(part)
        if self._full(_PARTS):
            return ""
        made = self._part(part)
        self._bytes += len(made.encode())
        return made

    def _part(self, part: Part | Section) -> str:
        if isinstance(part, Section):
            inner = "\n".join(map(self._counted, part.parts))
            name = _anchor(part.title)
            return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{_text(part.title)}</h2>\n{inner}\n</section>'
        if isinstance(part, Table):
            return self._table(part)
        if isinstance(part, Chart):
            return "" if part.empty else self._chart(part)
        if isinstance(part, Choice):
            return self._choice(part)
        if isinstance(part, Headline):
            return f'<p class="headline {_text(part.status)}">{_text(part.text)}</p>'
        if isinstance(part, Notice):
            return self._notice(part)
        if isinstance(part, Picks):
            return _picks(part)
        if isinstance(part, Figures):
            return _figures(part)
        return f"<p{_dim(part.dim)}>{_text(part.text)}</p>"

    def _chart(self, chart: Chart) -> str:
        if self._zoom:
            figure = plotly.figure(chart)
            self._figures[chart.name] = figure
            plot = _plot(chart.name, chart.title, figure["layout"]["height"])
        else:
            plot = _picture(chart)
        return _figure(_legend([chart], every=not self._zoom) + plot, chart, self._numbers(chart.table))

    def _numbers(self, *tables: Table, each: Sequence[str] = ("",)) -> str:
        """The charts' numbers, each with its attributes, behind a line that opens them."""
        if self._full(_TABLES):
            return ""
        rows = "\n".join(
            f"<div{more}>{self._rows(table)}</div>" if more else self._rows(table)
            for table, more in zip(tables, each, strict=True)
        )
        return f"<details>\n<summary>The numbers as a table</summary>\n{rows}\n</details>"

    def _choice(self, choice: Choice) -> str:
        pairs = [
            (key, label, chart)
            for key, label, chart in zip(choice.keys, choice.labels, choice.charts, strict=True)
            if not chart.empty
        ]
        if not pairs:
            return ""
        if self._zoom:
            for key, _, chart in pairs:
                self._figures[f"{choice.name}-{key}"] = plotly.figure(chart)
            height = self._figures[f"{choice.name}-{pairs[0][0]}"]["layout"]["height"]
            plot = _plot(choice.name, choice.title, height, choice.name)
        else:
            pairs = pairs[:CHOICES]
            plot = "\n".join(
                f"<div{_of(choice, key, place)}>{_picture(chart)}</div>"
                for place, (key, _, chart) in enumerate(pairs)
            )
        options = "".join(f'<option value="{key}">{_text(label)}</option>' for key, label, _ in pairs)
        shown = [chart for *_, chart in pairs]
        attributes = [_of(choice, key, place) for place, (key, *_) in enumerate(pairs)]
        select = (
            f'<p><label for="{choice.name}">{_text(choice.label)}</label> '
            f'<select id="{choice.name}" data-choice>{options}</select></p>\n'
        )
        return _figure(
            select + _legend(shown, every=not self._zoom) + plot,
            shown[0],
            self._numbers(*(chart.table for chart in shown), each=attributes),
            choice.title,
        )

    def _table(self, table: Table) -> str:
        return f'<p class="caption">{_text(table.title)}</p>\n{self._rows(table)}'

    def _rows(self, table: Table) -> str:
        self._count += 1
        name = f"table-{self._count}"
        names = list(table.columns)
        text = [table.is_text(place, column) for place, column in enumerate(names)]
        head = "".join(
            f'<th scope="col"{_class(["text"] if is_text else [])}>{_text(column.strip())}</th>'
            for is_text, column in zip(text, names, strict=True)
        )
        every = table.rows()
        chosen = every if self._zoom else every[:_ENOUGH]
        rows = "\n".join(
            f"<tr{_dim(dim)}>"
            + "".join(_cell(cell, is_text) for is_text, cell in zip(text, cells, strict=True))
            + "</tr>"
            for cells, dim in chosen
        )
        left = len(every) - len(chosen)
        said = " ".join(filter(None, (table.note, f"{left} more rows; --charts shows them." if left else "")))
        note = f'\n<p class="dim">{_text(said)}</p>' if said else ""
        title = _text(table.title)
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">\n<table id="{name}">\n'
            f'<caption class="sr">{title}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n'
            f"</table>\n</div>{note}\n"
            f'<p><button type="button" data-table="{name}">Copy the table</button>'
            '<span class="copied" role="status"></span></p>'
        )

    def _notice(self, notice: Notice) -> str:
        body = "".join(f"<p>{_text(text)}</p>\n" for text in notice.paragraphs)
        evidence = ""
        if notice.evidence:
            columns = {"evidence": list(notice.evidence), "value": list(notice.evidence.values())}
            evidence_rows = self._rows(Table(f"Evidence: {notice.message}", columns, 1))
            evidence = f"<details>\n<summary>The evidence</summary>\n{evidence_rows}\n</details>\n"
        severity = _text(notice.severity)
        return (
            f'<div class="finding {severity}">\n<p><span class="kind">{severity}:</span> '
            f"{_text(notice.message)}</p>\n{body}{evidence}</div>"
        )


def _figure(plot: str, chart: Chart, data: str, title: str = "") -> str:
    note = f'\n<p class="dim">{_text(chart.note)}</p>' if chart.note else ""
    return (
        f"<figure{'' if title else f' id={chart.name!r}'}>\n<figcaption>{_text(title or chart.title)}</figcaption>\n"
        f'<p class="says">{_text(chart.says)}</p>\n{plot}{note}\n{data}\n</figure>'
    )


def _plot(name: str, title: str, height: int, choice: str = "") -> str:
    chosen = f' data-choice="{choice}"' if choice else ""
    return (
        f'<div class="plot" role="img" tabindex="0" data-chart="{name}"{chosen} style="height:{height}px" '
        f'aria-label="Chart: {_text(title)}. {_KEYS}"></div>'
    )


def _picture(chart: Chart) -> str:
    about = f'aria-label="Chart: {_text(chart.title)}." data-chart="{chart.name}"'
    return f'<div class="plot" role="img" {about}>{svg(chart)}</div>'


def _of(choice: Choice, key: int, place: int) -> str:
    """The attributes of what is shown with one key of a choice, and is hidden but for the first."""
    return f' data-of="{choice.name}" data-key="{key}"{" hidden" if place else ""}'


def _picks(picks: Picks) -> str:
    buttons = "\n".join(
        f'<button type="button" data-chooser="{picks.chooser}" data-key="{key}">{_text(text)}</button>'
        for key, text in picks.items
    )
    return f'<div class="picks" role="group" aria-label="{_PICKS}">\n<span>{_PICKS}</span>\n{buttons}\n</div>'


def _figures(figures: Figures) -> str:
    items = "\n".join(
        f"<div{_class([item.tone] if item.tone else [])}><dt>{_text(item.name)}</dt>"
        f'<dd class="value">{_text(item.value)}</dd><dd>{_text(item.about)}</dd></div>'
        for item in figures.items
    )
    return f'<dl class="figures">\n{items}\n</dl>'


def _legend(charts: Sequence[Chart], *, every: bool) -> str:
    """What the colours of bars mean, in less room than Plotly needs; of other charts only with `every`."""
    named: dict[str, str] = {}
    for chart in charts:
        for panel in chart.panels:
            for series in panel.series:
                if isinstance(series, Heat):
                    continue
                if not isinstance(series, Spans) and not (every and chart.legend):
                    return ""
                named.setdefault(series.name, colour(series.colour))
    if len(named) < 2:
        return ""
    items = "".join(
        f'<li><span style="background:{shade}"></span>{_text(name)}</li>' for name, shade in named.items()
    )
    return f'<ul class="legend" aria-hidden="true">{items}</ul>\n'


def _contents(sections: Sequence[str]) -> str:
    if len(sections) < 2:
        return ""
    links = "".join(f'<li><a href="#{_anchor(title)}">{_text(title)}</a></li>' for title in sections)
    return f'<nav aria-label="Contents">\n<ul>{links}</ul>\n</nav>\n'


def _cell(cell: Cell, is_text: bool) -> str:
    text = cell if isinstance(cell, str) else cell.plain
    kinds = (["text"] if is_text else []) + (["long"] if len(text) > _LONG else [])
    return f"<td{_class(kinds)}>{_text(text)}</td>"


def _class(names: Sequence[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return files("pyddpdiag.report").joinpath(name).read_text(encoding="utf-8")


def _anchor(title: str) -> str:
    # With a prefix, so that no chart or table has the same name.
    return "view-" + "".join(c if c.isalnum() else "-" for c in title.lower())


def _dim(dim: bool) -> str:
    return ' class="dim"' if dim else ""


def _text(cell: Cell) -> str:
    return as_html(cell if isinstance(cell, str) else cell.plain)
