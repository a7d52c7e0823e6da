"""The verdict with its evidence, and what the traces themselves are like."""

from __future__ import annotations

from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import milliseconds, sentence
from pyddpdiag.report.page import Figures, Headline, Notice, Paragraph, Part
from pyddpdiag.report.run.account import account_chart, answers
from pyddpdiag.report.run.figures import figures
from pyddpdiag.report.run.where import where_chart
from pyddpdiag.report.tables import collectives_table, ranks_table, rest_tables


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
