"""What may be said of a run of which traces are missing or damaged: one rule for all checks.

A damaged trace says nothing by what it lacks, so only what single records say is left. A rank without a trace may be
the reason for which the others wait, and the other load that may have slowed them.
"""

from __future__ import annotations

from dataclasses import replace

from pyddpdiag.analyse.check import Check
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.words import listed, ranks, verb
from pyddpdiag.trace.run import Run


def may_look(check: Check, run: Run) -> bool:
    """Whether what is here is enough for this check."""
    if run.damaged:
        return check.rests_on == "records"
    return not run.missing_count or check.rests_on != "all ranks"


def weakened(finding: Finding, check: Check, run: Run) -> Finding:
    """The finding, or what is left of it if a rank without a trace may explain it: an observation without advice."""
    # What is unsure anyway may come of another load, and a rank without a trace is one.
    unsure = (check.rests_on, finding.severity, finding.confidence) == ("own times", "warning", "low")
    if not run.missing_count or (check.rests_on != "waits" and not unsure):
        return finding
    return replace(
        finding,
        severity="error" if finding.severity == "error" else "note",
        confidence="low",
        cost_ms=None,
        cost_s=None,
        advice="",
        change_mind=f"A rank whose trace is missing explains it. {finding.change_mind}".strip(),
    )


def what_is_here(run: Run) -> str:
    """The beginning of the verdict's sentence: what is wrong with the traces; empty: nothing is."""
    parts = []
    if run.damaged:
        parts.append(damage(run))
    unread = [rank for rank in run.damaged if rank in run.missing]
    if run.missing_count > len(unread):
        parts.append(f"only {len(run.ranks)} of {run.world_size} ranks' traces are here")
    return "; ".join(parts)


def damage(run: Run) -> str:
    """Which traces are damaged, and how the first one is."""
    here = {trace.rank for trace in run.ranks}
    which = list(run.damaged)
    how = "are" if len(which) > 1 else "is"
    state = f"{how} damaged" if here & set(which) else "cannot be read"
    why = listed(dict.fromkeys(run.damaged.values()), 2)
    return f"the {verb(which, 'trace', 'traces')} of {ranks(which)} {state} ({why})"
