"""Compares a report with the truth about its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bed.truth import Truth, family

Blame = Literal["right", "nobody", "another"]

# The check's own bar is a quarter of the step.
_COMMUNICATES = 4 / 3
COMMUNICATION = ("exposed_communication", "loopback")
"""Both say that buckets hold up the ranks; the second also says, where all are on one machine, through what."""


@dataclass(frozen=True)
class Judgement:
    """What the first line of a report is worth.

    Attributes:
        said: the first finding's kind, or the verdict's status where there is none.
        kind: it is of a right kind.
        cause: it is a right answer: of a right kind and, for a late rank, with the right cause.
        family: it names the right class of trouble, at least.
        blame: whom it blames: the culprit, nobody though there is one, or another rank. Where nobody is to
            blame, nobody is right.
        alarms: kinds of findings (no notes) with a confidence above `low`; for a healthy run, false alarms.
    """

    said: str
    kind: bool
    cause: bool
    family: bool
    blame: Blame
    alarms: tuple[str, ...]


def alarms(report: dict[str, Any]) -> tuple[str, ...]:
    """Kinds of all findings that are no notes and surer than `low`.

    A single bucket that no cap divides promises no other layout: it says what is exposed, and is called that here.
    """
    return tuple(
        "exposed_communication"
        if one["kind"] == "single_bucket" and one["evidence"].get("bucket_cap_mb", 0.0) is None
        else one["kind"]
        for one in report["verdict"]["findings"]
        if one["severity"] != "note" and one["confidence"] != "low"
    )


def communicates(judgement: Judgement) -> bool:
    """Whether an alarm says that communication holds up the ranks."""
    return any(kind in COMMUNICATION for kind in judgement.alarms)


def judge(report: dict[str, Any], truth: Truth, cost: float | None = None) -> Judgement:
    """The judgement of a report.

    Args:
        report: as `pyddpdiag report --json` prints it.
        truth: about the run.
        cost: of a healthy run, its step over that without all-reduces. Where that is a quarter of the step or more,
            `COMMUNICATION` is true and no false alarm.
    """
    findings = report["verdict"]["findings"]
    raised = alarms(report)
    if truth.healthy and cost is not None and cost >= _COMMUNICATES:
        raised = tuple(kind for kind in raised if kind not in COMMUNICATION)
    healthy = report["verdict"]["status"] == "healthy"
    if truth.healthy:
        innocent = not findings or findings[0]["rank"] is None
        well = healthy if not findings else not raised
        said = str(findings[0]["kind"] if findings else report["verdict"]["status"])
        return Judgement(said, well, well, well, "right" if innocent else "another", raised)
    first = findings[0] if findings else {"kind": report["verdict"]["status"], "rank": None}
    kind, rank, peer = str(first["kind"]), first["rank"], first.get("peer")
    kinds = {str(one["kind"]) for one in findings}
    right = any(answer.fits(kind, answer.cause, kinds) for answer in truth.answers)
    if healthy and not right:
        kind, rank, peer = "healthy", None, None  # that is its headline, whatever notes follow
    if rank is None and peer is None:
        blame: Blame = "right" if truth.culprit is None or truth.shared else "nobody"
    else:
        # A link has two ends; naming the link with the culprit at one of them is right. Where a path between two
        # hosts is slow, any link is right that a rank of each is at an end of.
        at_fault = {truth.culprit, truth.also} - {None}
        across = (
            truth.apart
            and rank is not None
            and peer is not None
            and (rank in truth.apart) != (peer in truth.apart)
        )
        blame = "right" if at_fault & {rank, peer} or across else "another"
    return Judgement(
        said=kind,
        kind=right,
        cause=any(answer.fits(kind, first.get("cause"), kinds) for answer in truth.answers),
        family=family(kind) in {family(answer.kind) for answer in truth.answers},
        blame=blame,
        alarms=raised,
    )
