"""The sentence on top of a report."""

from __future__ import annotations

from collections.abc import Sequence

from pyddpdiag.analyse.bounds import HEALTHY_SHARE, SEVERAL
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import brief, kind_of
from pyddpdiag.model.words import percent, sentence


def headline(findings: Sequence[Finding], lasted_s: float = 0.0) -> str:
    """One finding in full, or up to three that weigh the same in short, with what they cost.

    Args:
        findings: in their order.
        lasted_s: how long all judged steps took; findings of low confidence that cost less than 10% of it are not
            named beside a surer one, and do not stand as the answer; 0: not known.
    """
    first = findings[0]
    little = HEALTHY_SHARE * lasted_s
    if all(_is_unsure_and_cheap(one, little) for one in findings if one.severity == first.severity):
        return (
            f"{sentence(f'no finding costs {percent(HEALTHY_SHARE)} of the run')}. The first of them, of low "
            f"confidence: {brief(first)}."
        )
    named = [first]
    for finding in findings[1:]:
        # After a note that comes first all the same, the warning that it comes before.
        if (finding.severity != first.severity and first.severity != "note") or len(named) == SEVERAL:
            break
        if _says_less(finding, first) or _is_unsure_and_cheap(finding, little):
            continue
        if finding.severity == "error" or _is_worth_naming(finding, first, little):
            named.append(finding)
    if len(named) == 1:
        return sentence(first.message)
    return sentence("; ".join(dict.fromkeys(map(brief, named)))) + "."


def _says_less(finding: Finding, first: Finding) -> bool:
    """Whether it is only what the first one led to, and has no costs of its own."""
    return finding.cost_ms is None and finding.kind in kind_of(first).leads_to


def _is_unsure_and_cheap(finding: Finding, little_s: float) -> bool:
    """Whether it may be by chance, and cost little at most: not what a reader with 10 seconds needs."""
    return finding.confidence == "low" and finding.cost_s is not None and finding.cost_s < little_s


def _is_worth_naming(finding: Finding, first: Finding, little_s: float) -> bool:
    """Whether it costs enough beside the first one: in the whole run, or per step where that is not known."""
    if first.severity == "warning" and first.cost_s is None and first.cost_ms is None:
        return finding.cost_s is not None and finding.cost_s > little_s
    if finding.cost_s is not None and first.cost_s is not None:
        return finding.cost_s >= HEALTHY_SHARE * first.cost_s > 0
    return (finding.cost_ms or 0.0) >= HEALTHY_SHARE * (first.cost_ms or 0.0) > 0
