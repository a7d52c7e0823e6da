"""The picture of the ranks' whole lives: a bar of parts for each rank, with the rank that works alone marked."""

from __future__ import annotations

from typing import Final

from pyddpdiag.analyse.anatomy import FEW
from pyddpdiag.model import Finding, RunReport
from pyddpdiag.model.account import START_UP, RankAccount
from pyddpdiag.model.words import seconds
from pyddpdiag.report.charts.chart import Axis, Callout, Chart, Panel, Spans
from pyddpdiag.report.life import NAMES, account_table, shown_parts
from pyddpdiag.report.page import Part

_ROW: Final = 34
_COLOURS: Final = {
    "imports_s": "rest",
    "rendezvous_s": "queue",
    "construction_s": "optimizer",
    "set_up_s": "same",
    "first_steps_s": "forward",
    "compute_s": "compute",
    "blocked_s": "blocked",
    "core_wait_s": "core",
    "data_wait_s": "data",
    "communication_s": "wire",
    "rank_wait_s": "late",
    "collectives_s": "other",
    "phases_s": "phase",
    "collectives_between_s": "unsure",
    "between_steps_s": "bad",
    "between_epochs_s": "bad",
    "tail_s": "ideal",
    "unknown_s": "rest",
}
_ALONE: Final = ("between_epochs_s", "between_steps_s", "phases_s", "tail_s", "set_up_s")


def account_chart(report: RunReport) -> Chart | None:
    """Where the whole run went; None where nothing is known of it."""
    accounts = _shown(report)
    names = [part for part in shown_parts(accounts) if any(each.part(part) > 0 for each in accounts)]
    if not names:
        return None
    alone = next((each for each in report.verdict.findings if each.kind == "rank_alone"), None)
    row = next(
        (at for at, each in enumerate(accounts) if alone is not None and each.rank == alone.rank), None
    )
    lanes = [place + (row is not None and place > row) for place in range(len(accounts))]
    labels = [f"rank {each.rank}" for each in accounts]
    series, callouts = [], []
    marked = _marked(accounts[row], names) if row is not None else ""
    for part in names:
        for frame in (False, True):
            chosen = [
                place
                for place, each in enumerate(accounts)
                if each.part(part) > 0 and frame == (part == marked and place == row)
            ]
            if chosen:
                series.append(
                    _series(part, names, [accounts[at] for at in chosen], [lanes[at] for at in chosen], frame)
                )
    if row is not None and alone is not None and marked:
        callouts = [_callout(accounts[row], names, marked, lanes[row] + 1, alone)]
    more = (
        ""
        if len(accounts) == len(report.account)
        else f" The first {len(accounts)} ranks and those with findings."
    )
    return Chart(
        "account",
        "Where the whole run went",
        f"Each rank's life from the start of its process to its end, split into its parts.{more}",
        [
            Panel(
                series,
                Axis("", labels=labels, at=lanes),
                height=_ROW * (len(lanes) + (row is not None)) + 8,
                callouts=callouts,
            )
        ],
        Axis("s", from_zero=True),
        account_table(accounts),
    )


def parts(report: RunReport) -> list[Part]:
    """The picture, where the first screen does not show it."""
    chart = None if answers(report) else account_chart(report)
    return [] if chart is None else [chart]


def answers(report: RunReport) -> bool:
    """Whether what is to blame lies outside of the steps: the picture is on the first screen then."""
    first = next((each for each in report.verdict.findings if each.severity != "note"), None)
    return first is not None and (first.kind == "rank_alone" or "between_epochs" in first.evidence)


def _shown(report: RunReport) -> list[RankAccount]:
    blamed = {each.rank for each in report.verdict.findings}
    first = {each.rank for each in report.account[:FEW]}
    return [each for each in report.account if each.rank in blamed | first][: 2 * FEW]


def _marked(account: RankAccount, names: list[str]) -> str:
    """The part in which a rank that works alone does so."""
    there = [part for part in _ALONE if part in names]
    around = [part for part in there if part not in START_UP]
    return max(around or there, key=account.part, default="")


def _series(
    part: str, names: list[str], accounts: list[RankAccount], lanes: list[int], marked: bool
) -> Spans:
    before = names[: names.index(part)]
    start = [sum(each.part(other) for other in before) for each in accounts]
    return Spans(
        NAMES[part],
        start,
        [begin + each.part(part) for begin, each in zip(start, accounts, strict=True)],
        lanes,
        _COLOURS[part],
        [f"rank {each.rank}; {NAMES[part]}: {seconds(each.part(part))}" for each in accounts],
        list(range(len(accounts))),
        [seconds(each.part(part)) for each in accounts],
        marked,
    )


def _callout(account: RankAccount, names: list[str], part: str, lane: int, alone: Finding) -> Callout:
    middle = sum(account.part(other) for other in names[: names.index(part)]) + account.part(part) / 2
    text = f"rank {account.rank} works alone, the others wait {seconds(alone.cost_s or 0.0)}"
    return Callout(middle, lane, text, "start" if middle < account.wall_s / 2 else "end")


__all__ = ["account_chart", "answers", "parts"]
