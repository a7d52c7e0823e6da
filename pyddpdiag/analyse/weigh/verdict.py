"""Weigh the findings into one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyddpdiag.analyse.group_view import members
from pyddpdiag.analyse.partial import what_is_here
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.weigh.costs import lasted_s, priced, share_out, typical_s
from pyddpdiag.analyse.weigh.headline import headline
from pyddpdiag.analyse.weigh.lost import what_was_lost
from pyddpdiag.analyse.weigh.undecided import healthy_words, why_undecided
from pyddpdiag.model import Finding, Verdict, words
from pyddpdiag.model.kinds import KINDS, kind_of

WEIGHT: Final = {"error": 0, "warning": 1, "note": 2}

COMPARABLE: Final = 0.5
"""Of what load of others costs: a note that is sure and costs more than this part of it comes first."""

LESS_SURE: Final = 0.8
"""What is of medium confidence comes before what is sure only if it costs that much more."""

WORTH_A_WORD: Final = 0.04
"""Of all steps' time, if each took as long as a typical one: costs of a note are those of a typical step."""

LAYOUT: Final = ("single_bucket", "small_buckets", "large_last_bucket")
FAULTS: Final = [name for name, kind in KINDS.items() if "single_bucket" in kind.leads_to]
DIFFERENT: Final = ("mismatched_all_reduce", "world_size_differs")
MISTAKES: Final = (
    "oversubscribed_threads",
    "cpu_quota",
    "full_evaluation",
    "pause",
    "missing_no_sync",
    "buffer_broadcast",
    "collective_per_step",
    "needless_unused_search",
)


def weigh(parts: Sequence[RunView], findings: Sequence[Finding]) -> Verdict:
    """One answer: `findings` if any is an error or costs time, `healthy` if a cost of 10% can be excluded.

    Errors come first, causes before what they lead to, then warnings that the model learns less than it could; the rest
    is ordered by its cost, with what is of low confidence behind what is sure. That all ranks are on one machine, or
    on a slow network, is no fault, and comes behind those.

    Args:
        parts: the run's sets of ranks that meet, from `group_view.parts`.
        findings: what the checks found, in the catalog's order.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    # Of what ranks did differently, that which names a rank says more.
    errors = sorted(
        errors, key=lambda one: (True, False) if not _leads(one, errors) else (False, one.rank is None)
    )
    rest = [one for one in _less_sure(findings) if one.severity != "error"]
    shared: list[Finding] = []
    came = _interrupted(findings)
    for part in parts:
        # Findings about all ranks have no costs where some ranks never meet the others.
        mine = [priced(part, one) for one in rest if one.among == members(part)]
        shared += share_out(part, sorted(mine, key=_weight))
    shared += [one for one in rest if not one.among and len(parts) > 1]
    lasted = max(lasted_s(part) for part in parts)
    worth_s = WORTH_A_WORD * max(typical_s(part) for part in parts)
    ordered = (*errors, *_behind_notes(_behind_load(_behind_faults(sorted(shared, key=_weight))), worth_s))
    # What is wrong with the traces comes before what they say.
    here = what_is_here(parts[0].run)
    if any(one.severity != "note" for one in ordered):
        found = came + headline(ordered, lasted)
        return Verdict("findings", words.sentence(f"{here}. {found}") if here else found, ordered)
    for part in parts:
        if open_question := _question(part):
            undecided = f"cannot tell: {_of(part)}{open_question}"
            return Verdict(
                "cannot_tell", came + words.sentence(f"{here}; {undecided}" if here else undecided), ordered
            )
    return Verdict(
        "healthy", f"{came}Healthy: {'; '.join(_of(part) + healthy_words(part) for part in parts)}.", ordered
    )


def _question(part: RunView) -> str:
    """Why the run cannot be judged, and what it lost all the same; empty: it is healthy."""
    open_question, lost = why_undecided(part), what_was_lost(part)
    if lost is None:
        return open_question
    if open_question:
        return f"{open_question} {lost.said}"
    return f"no cause is seen of what the run lost. {lost.said}" if lost.is_much else ""


def _interrupted(findings: Sequence[Finding]) -> str:
    """That somebody ended the run, which then says what it showed until then."""
    notes = (one for one in findings if one.kind == "interrupted" and one.severity == "note")
    return "".join(f"{words.sentence(one.message)} " for one in notes)


def _of(part: RunView) -> str:
    """Whom a sentence is about, where it is not about all."""
    return f"among {words.ranks(members(part))}, " if members(part) else ""


def _weight(finding: Finding) -> tuple[int, bool, bool, bool, float]:
    # What other load on the machine may have made does not come before what is sure. And that there is such load
    # comes last: it disturbs any run, and is seldom the answer.
    unsure = finding.confidence == "low"
    return (
        WEIGHT[finding.severity],
        unsure,
        # That costs no time: a faster run would learn no better.
        finding.severity != "warning" or kind_of(finding).family != "values",
        _is_other_load(finding),
        # What it cost in the whole run, in its steps and between them.
        -(finding.cost_s or 0.0) * (LESS_SURE if finding.confidence == "medium" else 1.0),
    )


def _behind_faults(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; `loopback` comes behind the last sure warning about a mistake or one rank, and a network that is
    slow for all behind that about a fault of it.

    It is how the ranks were placed, and all runs there pay for it; what is wrong with this one is news.
    """
    sure = [one for one in findings if one.severity == "warning" and one.confidence != "low"]
    wrong = [one for one in sure if one.kind in MISTAKES or one.rank is not None]
    faults = [one for one in sure if one.kind in FAULTS]
    loopback, exposed = (
        [one for one in findings if one.kind == kind] for kind in ("loopback", "exposed_communication")
    )
    return _behind(exposed, faults, _behind(loopback, wrong, findings))


def _behind(some: Sequence[Finding], news: Sequence[Finding], findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with `some` of them behind the last of `news`."""
    last = max((place for place, one in enumerate(findings) if one in news), default=-1) + 1
    return [*sorted(findings[:last], key=lambda one: one in some), *findings[last:]]


def _behind_load(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; `loopback` of low confidence comes behind a wait for cores that costs far more.

    The copies take as long as they do because they wait, too.
    """
    loads = [one for one in findings if _is_other_load(one)]
    worth = COMPARABLE * max((one.cost_s or 0.0 for one in loads), default=0.0)
    small = [
        one
        for one in findings
        if (one.kind, one.confidence) == ("loopback", "low") and (one.cost_s or 0.0) < worth
    ]
    return _behind(small, loads, findings)


def _behind_notes(findings: Sequence[Finding], worth_s: float) -> list[Finding]:
    """The findings; what any run on such a machine has, if no more is warned of, comes after notes that are sure and
    cost as much, or as much as is worth a word (`worth_s`).

    On a busy machine a mistake that is there in each step takes a smaller part of it than on a quiet one.
    """
    warnings = [one for one in findings if one.severity == "warning"]
    if not warnings or not all(_is_of_any_run(one) for one in warnings):
        return list(findings)
    least = min(COMPARABLE * max(one.cost_s or 0.0 for one in warnings), worth_s)
    before = [
        one
        for one in findings[len(warnings) :]
        if one.confidence != "low" and one.cost_s is not None and one.cost_s > least
    ]
    return [*before, *(one for one in findings if one not in before)]


def _is_of_any_run(finding: Finding) -> bool:
    return finding.confidence == "low" and finding.kind in ("core_contention", "loopback")


def _is_other_load(finding: Finding) -> bool:
    return finding.kind == "core_contention" and finding.confidence == "low"


def _less_sure(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; beside a fault of the network, how gradients are put into buckets is of low confidence."""
    if not any(finding.kind in FAULTS and finding.severity == "warning" for finding in findings):
        return list(findings)
    return [replace(one, confidence="low") if one.kind in LAYOUT else one for one in findings]


def _leads(finding: Finding, errors: Sequence[Finding]) -> bool:
    """Whether ranks did different things before, or in the step in which, anything else went wrong."""
    different = finding.kind in DIFFERENT and finding.confidence in ("certain", "high")
    if not different and (finding.kind != "fewer_all_reduces" or finding.since_step is None):
        return False
    since = finding.since_step or 0
    return all(other.since_step is None or since <= other.since_step for other in errors)
