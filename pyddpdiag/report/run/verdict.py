"""The first screen: the verdict with its evidence, the numbers that matter, where the time of steps and lives went."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.anatomy import Anatomy, anatomy
from pyddpdiag.analyse.bounds import LEAST_MS
from pyddpdiag.analyse.step_matrix import judged_walls
from pyddpdiag.model.account import RankAccount
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import count, milliseconds, number, percent, seconds, sentence
from pyddpdiag.report.charts.chart import Axis, Chart, stacked
from pyddpdiag.report.culprit import Culprit, beside, culprit
from pyddpdiag.report.life import LIFE, account_rows, account_table, shown_parts
from pyddpdiag.report.page import Figure, Figures, Headline, Notice, Paragraph, Part
from pyddpdiag.report.rank_rows import shown_ranks
from pyddpdiag.report.run import steps
from pyddpdiag.report.tables import Table, collectives_table, ranks_table, rest_tables

UNLIKE: Final = 1.5
"""A mean step that takes so many times a median one."""


def figures(report: RunReport) -> list[Figure]:
    """The four numbers; empty where no step is known."""
    _, walls = judged_walls(report.steps)
    if not len(walls):
        return []
    step = float(np.median(walls))
    mean, late = float(walls.mean()), float(np.percentile(walls, 95))
    return [
        Figure("Step", milliseconds(step), f"median; mean {number(mean)}, 95% below {milliseconds(late)}"),
        _exposed(report, step),
        _late(report),
        _saved(report, step, mean),
    ]


def _exposed(report: RunReport, step: float) -> Figure:
    communication = report.steps.take(report.steps.judged).communication_ms
    known = communication[np.isfinite(communication)]
    if not len(known):
        return Figure("Exposed", "-", "how much communication is hidden is not known")
    exposed = float(np.median(known))
    share = percent(exposed / step) if step else "-"
    return Figure("Exposed", milliseconds(exposed), f"{share} of the step: communication beyond backward")


def _late(report: RunReport) -> Figure:
    late_kinds = ("own", "life")
    found = next(
        (one for one in report.verdict.findings if one.rank is not None and kind_of(one).marks in late_kinds),
        None,
    )
    if found is not None and found.cost_ms is not None:
        often = found.evidence.get("share_of_steps")
        share = f" in {percent(often)} of steps" if isinstance(often, float) else ""
        return Figure(
            "Late", milliseconds(found.cost_ms), f"rank {found.rank}, for which the others wait{share}", "bad"
        )
    judged = report.steps.take(report.steps.judged)
    late = judged.late_ms
    known = np.isfinite(late)
    if not known.any():
        return Figure("Late", "-", "not known")
    _, at = np.unique(judged.step[known], return_inverse=True)
    most = np.zeros(int(at.max()) + 1)
    np.maximum.at(most, at, late[known])
    return Figure("Late", milliseconds(float(np.median(most))), f"waiting for the last rank{_last(report)}")


def _last(report: RunReport) -> str:
    """Which rank is the last one most often."""
    shares = {rank.rank: rank.last_arrivals / rank.arrivals for rank in report.ranks if rank.arrivals}
    if len(shares) < 2:
        return ""
    rank = max(shares, key=lambda each: shares[each])
    return f": rank {rank} most often, for {percent(shares[rank])} of buckets"


def _saved(report: RunReport, step: float, mean: float) -> Figure:
    """The finding whose cure saves most; nothing is added up, as cures overlap."""
    savings = [(saving, finding) for finding in report.verdict.findings if (saving := _saving(finding))]
    if not savings:
        return Figure("Could be saved", "-", "nothing found to cure")
    saving, finding = max(savings, key=lambda each: each[0])
    # What comes now and then is more than a typical step takes: it is a part of the mean one.
    whole, of = (mean, "of a mean step") if mean >= UNLIKE * step else (step, "of a step")
    share = f" ({percent(min(1.0, saving / whole))})" if whole else ""
    how = kind_of(finding).cured(finding) + ("; confidence low" if finding.confidence == "low" else "")
    return Figure("Could be saved", f"{number(saving)} ms", f"{of}{share}, {how}", "good")


def _saving(finding: Finding) -> float | None:
    """What the best cure for it saves, where that is worth a word."""
    savings = [] if finding.severity == "note" else kind_of(finding).savings(finding).values()
    return max((saving for saving in savings if saving >= LEAST_MS), default=None)


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


def account_parts(report: RunReport) -> list[Part]:
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


_HARDLY: Final = 0.02


def where_chart(report: RunReport, details: RunDetails | None) -> Chart | None:
    """The mean step of each rank as a bar of its parts; None where no step is known."""
    found = anatomy(report.steps, report.cube if details else None, stretches=1)
    if not len(found):
        return None
    rows = steps.groups(found, report)
    shown = steps.drawn_parts(found)
    values = {part: [float(np.nan_to_num(steps.mean(found, part, row)[0])) for row in rows] for part in shown}
    marked = culprit(report, [[found.ranks[place] for place in row] for row in rows], values)
    judged = count(int(np.unique(report.steps.step[report.steps.judged]).size), "step")
    labels = [steps.label(found, row) for row in rows]
    return Chart(
        "where",
        "Where the time goes",
        f"The mean of {judged} on each rank, split into its parts.{steps.said(found, rows)}",
        [
            stacked(
                {part: (steps.name(part, found), steps.COLOURS[part]) for part in shown},
                values,
                labels,
                milliseconds,
                number,
                [] if marked is None else [(marked.part, row) for row in marked.rows(len(rows))],
                "" if marked is None else _said(found, marked, values),
            )
        ],
        Axis("ms per step", from_zero=True),
        Table(
            "Where the time goes: milliseconds of the mean step",
            {
                "rank": labels,
                **{steps.name(part, found): [number(value) for value in values[part]] for part in shown},
            },
            1,
        ),
    )


def _said(found: Anatomy, marked: Culprit, values: dict[str, list[float]]) -> str:
    """What is marked, in words."""
    part, finding, mine = marked.part, marked.finding, values[marked.part]
    if marked.everywhere:
        return f"every rank, {steps.name(part, found)}: {milliseconds(float(np.mean(mine)))}"
    if kind_of(finding).marks != "own":
        return f"rank {finding.rank}, {steps.name(part, found)}: {milliseconds(mine[marked.row])}"
    others = beside(mine, marked.row)
    less = "hardly" if others < _HARDLY * mine[marked.row] else milliseconds(others)
    on_disk = finding.cause == "disk" and part == "blocked"
    does = "waiting for a disk" if on_disk else steps.name(part, found)
    return f"rank {finding.rank}, {does}: {milliseconds(mine[marked.row])}, the others {less}"


def parts(report: RunReport, details: RunDetails | None) -> list[Part]:
    """The line on top, the numbers that matter, where the time goes, and each finding with what it rests on."""
    found: list[Part] = [Headline(report.verdict.line, report.verdict.status)]
    numbers, where = figures(report), where_chart(report, details)
    if numbers:
        found.append(Figures(numbers))
    life = account_chart(report) if answers(report) else None
    if life is not None:
        found.append(life)
    if where is not None:
        found.append(where)
    return [*found, *(_notice(finding) for finding in report.verdict.findings)]


def rest(report: RunReport) -> list[Part]:
    """Ranks, other collectives, phases, what was in flight, what failed, and what to know about the files."""
    more = [each for each in (collectives_table(report), *rest_tables(report)) if each.rows()]
    found: list[Part] = [ranks_table(report.ranks), *more]
    found += [Paragraph(sentence(text), dim=True) for text in report.warnings]
    return found


def _notice(finding: Finding) -> Notice:
    sure = f"Confidence: {finding.confidence}."
    if finding.change_mind:
        sure += f" What would disprove it: {finding.change_mind}"
    about = {
        "rank": finding.rank,
        "peer": finding.peer,
        "bucket": finding.bucket,
        "parameter": finding.parameter,
        "where": finding.where,
        "since step": finding.since_step,
        "until step": finding.until_step,
        "costs per step": None if finding.cost_ms is None else milliseconds(finding.cost_ms),
        "cost in this run": None if finding.cost_s is None else milliseconds(finding.cost_s * 1e3),
        "cause": finding.cause,
        **finding.evidence,
    }
    evidence = {
        name: f"{value:.6g}" if isinstance(value, float) else str(value)
        for name, value in about.items()
        if value is not None
    }
    texts = [sure] + ([finding.advice] if finding.advice else [])
    return Notice(finding.severity, sentence(finding.message), texts, {"kind": finding.kind, **evidence})
