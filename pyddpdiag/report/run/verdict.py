"""The verdict with its evidence, and what the traces themselves are like."""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.model import Finding, RankStats, RunReport, Stat
from pyddpdiag.model.details import RunDetails
from pyddpdiag.model.words import milliseconds, number, percent, sentence
from pyddpdiag.report.page import Figures, Headline, Notice, Paragraph, Part
from pyddpdiag.report.run.account import account_chart, answers
from pyddpdiag.report.run.figures import figures
from pyddpdiag.report.run.where import where_chart
from pyddpdiag.report.table import Table


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
    found: list[Part] = [ranks_table(report.ranks)]
    if report.other_collectives:
        found.append(_collectives(report))
    if report.phases:
        found.append(_phases(report))
    if report.in_flight_operations:
        found.append(_in_flight(report))
    if report.errors:
        found.append(_errors(report))
    if report.mismatches:
        found.append(_mismatches(report))
    found += [Paragraph(sentence(text), dim=True) for text in report.warnings]
    return found


def stat(value: Stat) -> str:
    """A median for people."""
    return "-" if value.median is None else number(value.median)


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


def ranks_table(ranks: Sequence[RankStats]) -> Table:
    """All ranks, a row for each."""
    return Table(
        "Ranks: median milliseconds per step",
        {
            "rank": [str(rank.rank) for rank in ranks],
            "host": [rank.host or "?" for rank in ranks],
            "steps": [str(rank.steps) for rank in ranks],
            "step": [stat(rank.wall_ms) for rank in ranks],
            "compute": [stat(rank.compute_ms) for rank in ranks],
            "data": [stat(rank.data_wait_ms) for rank in ranks],
            "exposed": [stat(rank.exposed_ms) for rank in ranks],
            "own part": [stat(rank.own_ms) for rank in ranks],
            "comes last": [
                percent(rank.last_arrivals / rank.arrivals) if rank.arrivals else "-" for rank in ranks
            ],
            "clock +/-": [
                "?" if rank.clock.uncertainty_ms is None else number(rank.clock.uncertainty_ms)
                for rank in ranks
            ],
            "records": [str(rank.records) for rank in ranks],
            "overwritten": [str(rank.overwritten) for rank in ranks],
            "in flight": [str(rank.in_flight) for rank in ranks],
            "errors": [str(rank.errors) for rank in ranks],
            " trace": ["closed" if rank.closed else "open" for rank in ranks],
            " process": [rank.ended_by or rank.ended or rank.process for rank in ranks],
        },
        2,
    )


def _collectives(report: RunReport) -> Table:
    rows = report.other_collectives[:200]
    return Table(
        "Other collectives, by name and rank: milliseconds",
        {
            "name": [row.name for row in rows],
            "group": [row.group or "-" for row in rows],
            "rank": [str(row.rank) for row in rows],
            "count": [str(row.count) for row in rows],
            "median": ["-" if row.median_ms is None else number(row.median_ms) for row in rows],
            "95%": ["-" if row.p95_ms is None else number(row.p95_ms) for row in rows],
            "waits for the last rank": ["-" if row.wait_ms is None else number(row.wait_ms) for row in rows],
            "total": [number(row.total_ms) for row in rows],
            "in flight": [str(row.in_flight) for row in rows],
            "called at": [row.where or "-" for row in rows],
        },
        2,
    )


def _phases(report: RunReport) -> Table:
    rows = report.phases[:200]
    return Table(
        "Phases that the program names: milliseconds",
        {
            "name": [row.name for row in rows],
            "rank": [str(row.rank) for row in rows],
            "count": [str(row.count) for row in rows],
            "median": ["-" if row.median_ms is None else number(row.median_ms) for row in rows],
            "total": [number(row.total_ms) for row in rows],
        },
        1,
    )


def _in_flight(report: RunReport) -> Table:
    rows = report.in_flight_operations[:200]
    return Table(
        f"In flight: {report.in_flight_total} operations that began and did not end",
        {
            "what": [row.what for row in rows],
            "kind": [row.kind for row in rows],
            "rank": [str(row.rank) for row in rows],
            "step": [str(row.step) for row in rows],
            "sequence": [str(row.sequence) for row in rows],
            "open for (ms)": [number(row.open_ms) for row in rows],
            " state": [
                "abandoned" if row.abandoned else "started" if row.started else "not started" for row in rows
            ],
        },
        2,
    )


def _errors(report: RunReport) -> Table:
    rows = report.errors[:200]
    return Table(
        f"Failed: {report.errors_total} operations, the earliest first",
        {
            "what": [row.what for row in rows],
            "kind": [row.kind for row in rows],
            "rank": [str(row.rank) for row in rows],
            "step": [str(row.step) for row in rows],
            "at (ms)": ["-" if row.at_ms is None else number(row.at_ms) for row in rows],
            " error": [row.text for row in rows],
        },
        2,
    )


def _mismatches(report: RunReport) -> Table:
    rows = report.mismatches[:200]
    return Table(
        "All-reduces in which the ranks did different things",
        {
            "group": [row.group for row in rows],
            "operation": [row.operation or "a bucket's all-reduce" for row in rows],
            "field": [row.field for row in rows],
            "step": [str(row.step) for row in rows],
            "count": [str(row.count) for row in rows],
            " values": [
                ", ".join(f"rank {rank}: {value}" for rank, value in row.values.items()) for row in rows
            ],
        },
        3,
    )
