"""The picture of the ranks' whole lives: a bar of parts for each rank, with the rank that works alone marked."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.account import RankAccount
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import seconds
from pyddpdiag.report.charts.chart import Axis, Chart
from pyddpdiag.report.charts.stacked import stacked
from pyddpdiag.report.life import LIFE, account_rows, account_table, shown_parts
from pyddpdiag.report.page import Part
from pyddpdiag.report.rank_rows import shown_ranks

_ALONE: Final = (
    "between_epochs_s",
    "between_steps_s",
    "phases_s",
    "tail_s",
    "set_up_s",
    # Where no loader marks the steps, they have no gaps.
    "compute_s",
    "blocked_s",
    "core_wait_s",
)


def account_chart(report: RunReport) -> Chart | None:
    """Where the whole run went; None where nothing is known of it."""
    rows = account_rows(report.account, {rank.rank for rank in shown_ranks(report)})
    accounts = list(rows.values())
    names = [part for part in shown_parts(accounts) if any(each.part(part) > 0 for each in accounts)]
    if not names:
        return None
    alone = next((each for each in report.verdict.findings if kind_of(each).marks == "life"), None)
    row = next(
        (at for at, each in enumerate(accounts) if alone is not None and each.rank == alone.rank), None
    )
    labels = [f"rank {name}" if each.rank >= 0 else f"{name} (mean)" for name, each in rows.items()]
    marked = _marked(accounts, row, names) if row is not None else ""
    marks, said = [], ""
    if row is not None and alone is not None and marked:
        waited = seconds(alone.cost_s or 0.0)
        marks, said = [(marked, row)], f"rank {alone.rank} works alone, the others wait {waited}"
    more = (
        ""
        if len(accounts) == len(report.account)
        else " Ranks that findings name or that differ have a bar of their own."
    )
    return Chart(
        "account",
        "Where the whole run went",
        f"Each rank's life from the start of its process to its end, split into its parts.{more}",
        [
            stacked(
                {part: LIFE[part][:2] for part in names},
                {part: [each.part(part) for each in accounts] for part in names},
                labels,
                seconds,
                marks=marks,
                said=said,
            )
        ],
        Axis("s", from_zero=True),
        account_table(rows),
    )


def parts(report: RunReport) -> list[Part]:
    """The picture, where the first screen does not show it."""
    chart = None if answers(report) else account_chart(report)
    return [] if chart is None else [chart]


def answers(report: RunReport) -> bool:
    """Whether what is to blame lies outside of the steps: the picture is on the first screen then."""
    first = next((each for each in report.verdict.findings if each.severity != "note"), None)
    return first is not None and (kind_of(first).marks == "life" or "between_epochs" in first.evidence)


def _marked(accounts: list[RankAccount], row: int, names: list[str]) -> str:
    """The part in which a rank that works alone does so: of which it has most more than the others."""
    others = accounts[:row] + accounts[row + 1 :]

    def more(part: str) -> float:
        return accounts[row].part(part) - min((each.part(part) for each in others), default=0.0)

    return max((part for part in _ALONE if part in names), key=more, default="")
