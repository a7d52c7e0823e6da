"""The report's table of ranks, for people: of many ranks, those that a finding names and those that differ."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from rich.text import Text

from pyddpdiag.model.now import ProcessEnd, ProcessStatus
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import RankStats
from pyddpdiag.model.stats import Stat
from pyddpdiag.model.words import count, number
from pyddpdiag.output import clean
from pyddpdiag.report.screen import Screen
from pyddpdiag.report.tables import Table, ranks_table

FEW: Final = 16
"""So many ranks are all shown."""

SHOWN: Final = 12
"""Of more ranks, so many at most are shown each by itself."""

_SPREADS: Final = 6.0
_LEAST_SHARE: Final = 0.1
_MAD: Final = 1.4826
"""By which the median of absolute deviations becomes a standard deviation, for values that are normally distributed."""

_TIMES: Final[tuple[Callable[[RankStats], float | None], ...]] = (
    lambda rank: rank.compute_ms.median,
    lambda rank: rank.data_wait_ms.median,
    lambda rank: rank.own_ms.median,
    lambda rank: float(rank.steps),
)


def outstanding(report: RunReport, remarks: Mapping[int, str]) -> list[RankStats]:
    """The ranks to show, sorted by rank; all, if they are few.

    A rank differs if its compute, data wait, own time or number of steps is away from the ranks' median by six times
    their spread and a tenth of the median. `remarks`: what is unusual about a rank, by rank, where something is. What
    most ranks have is not unusual.
    """
    if len(report.ranks) <= FEW:
        return list(report.ranks)
    findings = report.verdict.findings
    named = [rank for finding in findings for rank in (finding.rank, finding.peer) if rank is not None]
    common = {text for text, times in Counter(remarks.values()).items() if 2 * times > len(report.ranks)}
    remarked = [rank for rank, text in sorted(remarks.items()) if text not in common]
    chosen = list(dict.fromkeys([*named, *remarked, *_different(report.ranks)]))[:SHOWN]
    wanted = set(chosen)
    return [rank for rank in report.ranks if rank.rank in wanted]


def _different(ranks: Sequence[RankStats]) -> list[int]:
    """The ranks that differ, the most different first."""
    worst: dict[int, float] = {}
    for time in _TIMES:
        known = {rank.rank: value for rank in ranks if (value := time(rank)) is not None}
        if len(known) < 3:
            continue
        values = np.array(list(known.values()))
        middle = float(np.median(values))
        away = np.abs(values - middle)
        least = max(_SPREADS * _MAD * float(np.median(away)), _LEAST_SHARE * abs(middle), 1e-9)
        for rank, far in zip(known, (away / least).tolist(), strict=True):
            if far > 1:
                worst[rank] = max(worst.get(rank, 0.0), far)
    return sorted(worst, key=lambda rank: -worst[rank])


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
