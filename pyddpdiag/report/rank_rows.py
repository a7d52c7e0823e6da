"""The report's table of ranks, for people: of many ranks, those that stand out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

from rich.text import Text

from pyddpdiag.model.now import ProcessEnd, ProcessStatus
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import RankStats
from pyddpdiag.model.stats import Stat
from pyddpdiag.model.words import count, number
from pyddpdiag.output import clean
from pyddpdiag.report.outstanding import outstanding
from pyddpdiag.report.screen import Screen
from pyddpdiag.report.table import Table
from pyddpdiag.report.tables import ranks_table


def shown_ranks(report: RunReport, *, every_rank: bool = False) -> list[RankStats]:
    """The ranks that have a row of their own. `every_rank`: all of them, however many."""
    if every_rank:
        return list(report.ranks)
    return outstanding(report, {rank.rank: str(_remarks(rank)) for rank in report.ranks})


def screen_ranks(screen: Screen, report: RunReport, ranks: Sequence[RankStats]) -> None:
    """Print the table: a row for each of these ranks, and one for the others."""
    every = ranks_table(ranks).columns
    columns = {name: every[name] for name in list(every)[: 1 + list(every).index("records")]}
    columns[" remarks"] = [_remarks(rank) for rank in ranks]
    shown = {rank.rank for rank in ranks}
    others = [rank for rank in report.ranks if rank.rank not in shown]
    if others:
        summed = _in_one_row(others)
        columns = {name: [*cells, summed.get(name, "")] for name, cells in columns.items()}
    if not any(rank.other_ms.median for rank in report.ranks):
        del columns["other calls"]
    if len(report.ranks) < 2:
        del columns["comes last"]
    if all(rank.clock.uncertainty_ms == 0 for rank in report.ranks):
        del columns["clock +/-"]
    screen.fit(columns, ["records", "steps", "own part", "clock +/-", "comes last"])
    micro_steps = max((rank.micro_steps for rank in ranks), default=1)
    per = "step" if micro_steps == 1 else f"synchronising step, of {micro_steps} steps"
    note = "Shown are ranks that findings name or that differ; --all shows every rank." if others else ""
    screen.table(Table(f"Ranks (median ms per {per})", columns, 2, note=note))


def _in_one_row(ranks: Sequence[RankStats]) -> dict[str, str]:
    """Ranks that are alike: the medians of their medians."""

    def middle(stats: Iterable[Stat]) -> str:
        known = [stat.median for stat in stats if stat.median is not None]
        return number(statistics.median(known)) if known else "-"

    return {
        "rank": count(len(ranks), "other"),
        "host": count(len({rank.host for rank in ranks}), "host"),
        "steps": str(round(statistics.median(rank.steps for rank in ranks))),
        "step": middle(rank.wall_ms for rank in ranks),
        "compute": middle(rank.compute_ms for rank in ranks),
        "data": middle(rank.data_wait_ms for rank in ranks),
        "exposed": middle(rank.exposed_ms for rank in ranks),
        "other calls": middle(rank.other_ms for rank in ranks),
        "own part": middle(rank.own_ms for rank in ranks),
    }


_PROCESS: Final[dict[ProcessStatus, str]] = {
    "running": "running",
    "stopped": "stopped",
    "dead": "dead, not closed",
    "unknown": "not closed",
}


_ENDED: Final[dict[ProcessEnd, str]] = {"orderly": "ended, not closed", "exception": "ended by an exception"}


def _end(rank: RankStats) -> str:
    if rank.ended_by:
        return f"ended by {clean(rank.ended_by)}"
    if rank.closed:
        return ""
    return _ENDED[rank.ended] if rank.ended else _PROCESS[rank.process]


def _remarks(rank: RankStats) -> Text:
    """What is unusual about a rank."""
    remarks = [
        (count(rank.errors, "error") if rank.errors else "", "red"),
        (f"{rank.in_flight} in flight" if rank.in_flight else "", "yellow"),
        (_end(rank), "yellow"),
        (f"{rank.overwritten} overwritten" if rank.overwritten else "", "dim"),
    ]
    return Text(", ").join(Text(text, style) for text, style in remarks if text)
