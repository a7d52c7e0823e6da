"""Weigh the findings into one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyddpdiag.analyse.bounds import MATTERS_SHARE, SURENESS
from pyddpdiag.analyse.group_view import members
from pyddpdiag.analyse.partial import what_is_here
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.weigh.causes import causes_first
from pyddpdiag.analyse.weigh.costs import lasted_s, priced, typical_s
from pyddpdiag.analyse.weigh.explain import Explained
from pyddpdiag.analyse.weigh.headline import headline
from pyddpdiag.analyse.weigh.lost import what_was_lost
from pyddpdiag.analyse.weigh.undecided import healthy_words, why_undecided
from pyddpdiag.model import words
from pyddpdiag.model.findings import Charge, Finding, Verdict
from pyddpdiag.model.kinds import kind_of

Weight = tuple[int, bool, bool, bool, float]


def weigh(parts: Sequence[RunView], findings: Sequence[Finding]) -> Verdict:
    """One answer: `findings` if any is an error or costs time, `healthy` if a cost of 10% can be excluded.

    Errors come first, causes before what they led to, then warnings that the model learns less than it could; the rest
    is ordered by its cost times its confidence. What is so on this machine in any run (`environment`) is no fault, and
    comes behind that; on a busy machine also behind sure notes, as a mistake that is there in each step takes a smaller
    part of it than on a quiet one.

    Args:
        parts: the run's sets of ranks that meet, from `group_view.parts`.
        findings: what the checks found, in the catalog's order.
    """
    errors = causes_first([one for one in findings if one.severity == "error"])
    rest = [one for one in _less_sure(findings) if one.severity != "error"]
    came = _interrupted(findings)
    lasted = max(lasted_s(part) for part in parts)
    worth_s = MATTERS_SHARE * max(typical_s(part) for part in parts)

    def weight(finding: Finding) -> Weight:
        return _weight(finding, worth_s)

    # Findings about all ranks have no costs where some ranks never meet the others.
    shared = [one for one in rest if not one.among and len(parts) > 1]
    charges: tuple[Charge, ...] = ()
    for part in parts:
        mine = [priced(part, one) for one in rest if one.among == members(part)]
        # What any run here has is what the others leave.
        explained = Explained(part.charges)
        shared += explained.by(sorted(mine, key=lambda one: (kind_of(one).environment, weight(one))))
        charges += explained.charged(members(part))
    ordered = (*errors, *sorted(shared, key=weight))
    # What is wrong with the traces comes before what they say.
    here = what_is_here(parts[0].run)
    if any(one.severity != "note" for one in ordered):
        found = came + headline(ordered, lasted)
        line = words.sentence(f"{here}. {found}") if here else found
        return Verdict("findings", line, ordered, charges)
    for part in parts:
        if open_question := _question(part):
            undecided = f"cannot tell: {_of(part)}{open_question}"
            line = came + words.sentence(f"{here}; {undecided}" if here else undecided)
            return Verdict("cannot_tell", line, ordered, charges)
    line = f"{came}Healthy: {'; '.join(_of(part) + healthy_words(part) for part in parts)}."
    return Verdict("healthy", line, ordered, charges)


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


def _weight(finding: Finding, worth_s: float) -> Weight:
    kind, unsure = kind_of(finding), finding.confidence == "low"
    cost_s = finding.cost_s or 0.0
    if finding.severity == "note":
        tier = 1 if cost_s > worth_s and not unsure else 3
    else:
        # It may be no more than what disturbs any run, and is seldom the answer.
        tier = 2 if kind.environment and unsure else 0
    # What costs no time: a faster run would learn no better.
    learns = finding.severity == "warning" and kind.family == "values"
    return tier, unsure, not learns, kind.environment, -cost_s * SURENESS.get(finding.confidence, 1.0)


def _less_sure(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; as causes, warnings are of low confidence where they follow from another one."""
    sure = [one for one in findings if one.severity == "warning" and one.confidence != "low"]
    led = {kind for one in sure for kind in kind_of(one).leads_to}
    return [replace(one, confidence="low") if one.kind in led else one for one in findings]
