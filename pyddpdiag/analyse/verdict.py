"""Weigh the findings into one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.timing import LEAST_STEPS, StepMatrix, exposed_ms, extra_ms, median
from pyddpdiag.model import Finding, Verdict
from pyddpdiag.model.words import count, listed, milliseconds, percent
from pyddpdiag.trace.run import Run

WEIGHT: Final = {"error": 0, "warning": 1, "note": 2}
SURE: Final = {"certain": 0, "high": 1, "medium": 2, "low": 3}

# What a finding about time costs per step, by the name of its evidence.
COSTS: Final = ("extra_ms", "exposed_ms", "data_wait_ms")


def weigh(run: Run, steps: StepMatrix, pairs: int, findings: Sequence[Finding]) -> Verdict:
    """One answer: findings if any of them fails or costs something, else healthy if enough could be seen.

    Args:
        run: the ranks that have a trace.
        steps: the judged steps.
        pairs: bucket occurrences that ended on every rank.
        findings: what the others found.
    """
    ordered = tuple(sorted(findings, key=_weight))
    if ordered and ordered[0].severity != "note":
        return Verdict("findings", _sentence(ordered[0].message), ordered)
    blind = _blind(run, steps, pairs)
    if blind:
        return Verdict("cannot_tell", f"Cannot tell: {blind}", ordered)
    return Verdict("healthy", _healthy(steps), ordered)


def _weight(finding: Finding) -> tuple[int, int, float]:
    cost = max((float(finding.evidence.get(name) or 0) for name in COSTS), default=0.0)
    if finding.severity == "error":
        return 0, SURE[finding.confidence], 0.0
    return WEIGHT[finding.severity], 0, -cost


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _blind(run: Run, steps: StepMatrix, pairs: int) -> str:
    """Why the run cannot be judged; empty if it can."""
    if not any(len(trace) for trace in run.ranks):
        return "the traces hold no records. Did the run make a training step?"
    if not pairs:
        return "no bucket's all-reduce has ended on every rank."
    if run.missing_count:
        ranks = listed(run.missing[:8]) + (
            f" and {run.missing_count - 8} more" if run.missing_count > 8 else ""
        )
        return (
            f"the traces of {'rank' if run.missing_count == 1 else 'ranks'} {ranks} of {run.world_size} "
            "are missing; "
            "what is here shows no trouble."
        )
    if steps.steps < LEAST_STEPS:
        return f"only {count(steps.steps, 'step')} can be judged, and {LEAST_STEPS} are needed."
    return ""


def _healthy(steps: StepMatrix) -> str:
    exposed, wall = median(exposed_ms(steps)), steps.wall_ms
    if np.isnan(exposed):
        said = (
            f"a step takes {milliseconds(wall)} (how much waits for buckets is not known: no backward record)"
        )
    else:
        # The least over the ranks of a step is communication; what a rank waits above that, it waits for others.
        most = max(median(waited) for waited in steps.exposed.T)
        said = (
            f"communication itself holds up {milliseconds(exposed)} of a step of {milliseconds(wall)} "
            f"({percent(exposed / wall if wall else 0.0)}); with waiting for each other, a rank waits up to "
            f"{milliseconds(most)} after backward"
        )
    rows = ~np.isnan(steps.own).any(axis=1)
    if len(steps.ranks) > 1 and rows.any():
        most = max(median(extra) for extra in extra_ms(steps.own[rows]).T)
        said += f", and no rank is late (at most {milliseconds(most)})"
    return f"Healthy: {said}."
