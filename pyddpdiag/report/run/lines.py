"""At which lines of the script the ranks were: a flame graph for each rank, and the most frequent lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyddpdiag.model.lines import Flame
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import number, percent
from pyddpdiag.report.charts.chart import Axis, Bar, Chart, Choice, Panel, Spans
from pyddpdiag.report.page import Part
from pyddpdiag.report.tables import Table, table_of

MOST_RANKS: Final = 8
MOST_ROWS: Final = 200
CHOOSER: Final = "lines"

# As the same parts in other charts.
_COLOURS: Final = {
    "data wait": "data",
    "forward": "forward",
    "backward": "compute",
    "communication": "wire",
    "after backward": "optimizer",
    "other collectives": "other",
    "phases": "phase",
}


def parts(report: RunReport) -> list[Part]:
    """The flame graphs of the ranks that findings blame, then of others, and the table of lines."""
    found: list[Part] = []
    blamed = [finding.rank for finding in report.verdict.findings]
    flames = sorted(
        (flame for flame in report.flames if flame.names),
        key=lambda each: ([*blamed, each.rank].index(each.rank), each.rank),
    )
    if flames:
        shown = flames[:MOST_RANKS]
        found.append(
            Choice(
                CHOOSER,
                "Lines of the script",
                "Rank",
                [f"rank {flame.rank}" for flame in shown],
                [flame.rank for flame in shown],
                [_chart(flame) for flame in shown],
            )
        )
    if report.lines:
        found.append(_table(report))
    return found


def _chart(flame: Flame) -> Chart:
    bars = list(zip(flame.names, flame.depth, flame.start_s, flame.end_s, strict=True))
    whole = max(flame.end_s)
    by_part: dict[str, list[Bar]] = {}
    part = ""
    for text, lane, start, end in bars:
        part = text if lane == 0 else part
        said = f"{text}: {number(end - start)} s, {percent((end - start) / whole)}"
        by_part.setdefault(part, []).append(Bar(start, end, lane, said, text))
    series = [Spans(name, mine, _COLOURS.get(name, "rest")) for name, mine in by_part.items()]
    depth = max(flame.depth) + 1
    columns = {
        "line": ["  " * lane + text for text, lane, *_ in bars],
        "seconds": [number(end - start) for *_, start, end in bars],
    }
    return Chart(
        f"{CHOOSER}-{flame.rank}",
        f"Lines of the script: rank {flame.rank}",
        "How long the rank was in each part of the training, and at which lines there: the outermost line on top, what "
        "the innermost one called at the bottom. From looks at its main thread.",
        [Panel(series, Axis("", labels=["part", *[""] * (depth - 1)]), height=min(420, 60 + 26 * depth))],
        Axis("seconds in all"),
        Table(f"Lines of the script: rank {flame.rank}", columns, 1),
        legend=False,
    )


def _table(report: RunReport) -> Table:
    missed = {row.rank: row.missed_s for row in report.lines if row.missed_s >= 0.05}
    found = table_of(
        "Most frequent lines by rank and part",
        report.lines,
        {
            "rank": "rank",
            "part": "part",
            "line": "where",
            "calls": "call",
            "looks": "samples",
            "share of the part": lambda row: percent(row.fraction),
            "seconds": "total_s",
        },
        4,
        MOST_ROWS,
    )
    notes = [f"Rank {rank} could not be looked at for {number(missed[rank])} s." for rank in list(missed)[:8]]
    return replace(found, note=" ".join(filter(None, [found.note, *notes])))
