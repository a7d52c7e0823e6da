"""The sentence on top of a report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyddpdiag.analyse.thresholds import HEALTHY_SHARE
from pyddpdiag.model import Finding
from pyddpdiag.model.words import milliseconds, percent, ranks, sentence

MOST: Final = 3
"""Findings in the sentence."""

LEAST_PART: Final = 0.1
"""A further finding is in it if it costs this part of the first one."""

LED_TO: Final = {
    "node_lost": ("rank_lost", "operation_failed"),
    "rank_lost": ("operation_failed",),
    "interrupted": ("operation_failed",),
    "mismatched_all_reduce": ("rank_lost", "operation_failed"),
    "fewer_all_reduces": ("operation_failed",),
}
"""What a finding has led to, and says itself."""

OF_RUN: Final = ("rank_alone", "full_evaluation")
"""Kinds of which the cost per step says little, for it comes all at once: the message begins with that of the run."""

_END: Final = re.compile(r": |; |\. | \(|, (?:first|and|though|in) |\.?$")
"""Where the first statement of a message ends."""

_END_OF_RUN: Final = re.compile(", ")


def headline(findings: Sequence[Finding], lasted_s: float = 0.0) -> str:
    """One finding in full, or the first statements of up to three that weigh the same, with what they cost.

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
        if (finding.severity != first.severity and first.severity != "note") or len(named) == MOST:
            break
        if finding.kind in LED_TO.get(first.kind, ()) or _is_unsure_and_cheap(finding, little):
            continue
        if finding.severity == "error" or _is_worth_naming(finding, first, little):
            named.append(finding)
    if len(named) == 1:
        return sentence(first.message)
    return sentence("; ".join(brief(finding) for finding in named)) + "."


def _is_unsure_and_cheap(finding: Finding, little_s: float) -> bool:
    """Whether it may be by chance, and cost little at most: not what a reader with 10 seconds needs."""
    return finding.confidence == "low" and finding.cost_s is not None and finding.cost_s < little_s


def _is_worth_naming(finding: Finding, first: Finding, little_s: float) -> bool:
    """Whether it costs enough beside the first one: in the whole run, or per step where that is not known."""
    if first.severity == "warning" and first.cost_s is None and first.cost_ms is None:
        return finding.cost_s is not None and finding.cost_s > little_s
    if finding.cost_s is not None and first.cost_s is not None:
        return finding.cost_s >= LEAST_PART * first.cost_s > 0
    return (finding.cost_ms or 0.0) >= LEAST_PART * (first.cost_ms or 0.0) > 0


def brief(finding: Finding) -> str:
    """The beginning of its message, with its cost per step."""
    # "among ranks 0, 1, in a typical step ..." begins with whom it is about.
    whom = len(f"among {ranks(finding.among)}, ") if finding.among else 0
    end = (_END_OF_RUN if finding.kind in OF_RUN else _END).search(finding.message, whom)
    text = finding.message[: end.start()] if end else finding.message
    text = text[:1].lower() + text[1:] if text[1:2].islower() else text
    if finding.cost_ms is None or finding.kind in OF_RUN:
        return text
    return f"{text} ({milliseconds(finding.cost_ms)} per step)"
