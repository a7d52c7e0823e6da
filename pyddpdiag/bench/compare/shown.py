"""A comparison on the terminal, and as one self-contained HTML page with its charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TextIO

from rich.text import Text

from pyddpdiag.bench.compare.comparison import Change, Comparison, Pair, PartChange
from pyddpdiag.bench.compare.matching import short_names
from pyddpdiag.bench.compare.tables import changes_table, curves_table, pairs_table, scaling_table, tables
from pyddpdiag.bench.intervals import TOO_FEW, Word
from pyddpdiag.model.words import listed
from pyddpdiag.report.charts.chart import (
    Axis,
    Chart,
    Interval,
    Line,
    Mark,
    Panel,
    by_word,
    plain,
    ratio_ticks,
)
from pyddpdiag.report.page import Paragraph, Section
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.report.screen import screen_for

MOST_PAIRS: Final = 40
_ROW: Final = 26
"""Pixels of a case."""

_LOOK: Final[dict[Word, tuple[str, Mark]]] = {
    "faster": ("good", "circle"),
    "slower": ("bad", "circle"),
    "no difference": ("same", "diamond"),
    "cannot tell": ("unsure", "cross"),
}
_CHANGED: Final[dict[Change, tuple[str, Mark]]] = {
    "less": ("good", "circle"),
    "more": ("bad", "circle"),
    "no difference": ("same", "diamond"),
    "cannot tell": ("unsure", "cross"),
}


def charts(comparison: Comparison) -> list[Chart]:
    """The charts that have something to show."""
    found = [_changes(comparison.changes)] if comparison.changes else []
    for name, kinds in (("ratios", ("step", "allreduce")), ("trainings", ("scaling",))):
        pairs = [pair for pair in comparison.pairs if pair.kind in kinds]
        if pairs:
            found.append(_ratios(name, pairs))
    if any(row.speedup for row in comparison.scaling):
        found.append(_speedups(comparison))
    if comparison.curves:
        found.append(_losses(comparison))
    return found


def _ratios(name: str, every: Sequence[Pair]) -> Chart:
    pairs = every[:MOST_PAIRS]
    common, labels = short_names(pairs)
    rows = []
    for place, pair in enumerate(pairs):
        tip = (
            f"{pair.other}, {pair.case}; {pair.word}{': ' + pair.why if pair.why else ''}; "
            f"{pair.ratio.median:.3g} [{pair.ratio.low:.3g} to {pair.ratio.high:.3g}]"
        )
        rows.append((pair.word, Interval(place, pair.ratio.median, *interval(pair), tip)))
    series = by_word(_LOOK, rows)
    others = list(dict.fromkeys(pair.other for pair in pairs))
    left = "" if len(pairs) == len(every) else f" The first {len(pairs)} of {len(every)} are shown."
    low, high = min(interval(pair)[0] for pair in pairs), max(interval(pair)[1] for pair in pairs)
    what = "training times" if name == "trainings" else "times"
    return Chart(
        name,
        f"{' and '.join(others)} against {pairs[0].base}: ratios of {what}",
        f"Below 1 is faster than {pairs[0].base}. Bars are 95% intervals.{common and ' '}{common}{left}",
        [Panel(series, Axis("", labels=labels), height=_ROW * len(pairs) + 24)],
        Axis(f"time / time of {pairs[0].base}", logarithmic=True, ticks=ratio_ticks(low, high), line_at=1.0),
        pairs_table(list(every)),
    )


def interval(pair: Pair) -> tuple[float, float]:
    """The interval to draw: none where there are too few rounds for one, as in the table."""
    if pair.why == TOO_FEW:
        return pair.ratio.median, pair.ratio.median
    return pair.ratio.low, pair.ratio.high


def _changes(every: Sequence[PartChange]) -> Chart:
    changes = every[:MOST_PAIRS]
    rows = []
    for place, change in enumerate(changes):
        found = change.difference_ms
        tip = f"{change.part}; {change.base_ms:.4g} ms before, {change.other_ms:.4g} ms after; {change.word}"
        rows.append((change.word, Interval(place, found.median, found.low, found.high, tip)))
    series = by_word(_CHANGED, rows)
    others = list(dict.fromkeys(change.other for change in changes))
    several = len(others) > 1
    labels = [f"{change.other}: {change.part}" if several else change.part for change in changes]
    return Chart(
        "changes",
        f"{' and '.join(others)} against {changes[0].base}: where a step's time changed",
        "Change of the median step, its parts and buckets in ms; right of 0 it takes longer. Bars are 95% intervals.",
        [Panel(series, Axis("", labels=labels), height=_ROW * len(changes) + 24)],
        Axis("ms per step", line_at=0.0),
        changes_table(every),
    )


def _speedups(comparison: Comparison) -> Chart:
    rows = [row for row in comparison.scaling if row.speedup]
    worlds = sorted({n for row in rows for n in row.speedup})
    series = [
        Line(
            row.label if row.reference else f"{row.label}: {row.what}",
            list(row.speedup),
            plain(row.speedup.values()),
            str(place),
            "dash" if row.reference else "solid",
            marks=True,
        )
        for place, row in enumerate(rows)
    ]
    series.append(Line("ideal", worlds, worlds, "ideal", "dot"))
    return Chart(
        "speed-up",
        "Speed-up by number of ranks",
        "Against 1 rank; the dotted line is the ideal. Broken lines are published figures, not measured here.",
        [Panel(series, Axis("speed-up", from_zero=True), height=300)],
        Axis("ranks", ticks=worlds),
        scaling_table(comparison),
    )


def _losses(comparison: Comparison) -> Chart:
    series = [
        Line(curve.label, plain(curve.elapsed_s), plain(curve.loss), str(place), marks=True)
        for place, curve in enumerate(comparison.curves)
    ]
    return Chart(
        "loss",
        "Loss over time",
        "Training loss after each epoch.",
        [Panel(series, Axis("loss"), height=280)],
        Axis("seconds"),
        curves_table(comparison),
    )


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
