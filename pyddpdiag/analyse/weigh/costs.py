"""Costs that do not add up to more than there is: two findings may explain the same milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from pyddpdiag.analyse.bounds import MOST
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.step_matrix import beyond_mean, median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of


def priced(view: RunView, finding: Finding) -> Finding:
    """The finding with what it cost in all steps that can be judged, where it does not know better itself."""
    if finding.cost_ms is None or finding.cost_s is not None or finding.severity == "error":
        return finding
    return replace(finding, cost_s=finding.cost_ms * view.judged.steps / 1e3)


def lasted_s(view: RunView) -> float:
    """How long all steps that can be judged took, with phases before them."""
    return float(np.nansum(np.fmax.reduce(view.step_spans, axis=1))) / 1e3 if view.step_spans.size else 0.0


def typical_s(view: RunView) -> float:
    """How long they would take if each was a typical one."""
    spans = np.fmax.reduce(view.step_spans, axis=1) if view.step_spans.size else np.empty(0)
    return median(spans) * view.judged.steps / 1e3 if np.isfinite(spans).any() else 0.0


def share_out(view: RunView, findings: Iterable[Finding]) -> list[Finding]:
    """Limit what each finding costs to what the findings before it have left.

    Of what all ranks do at one line, one kind tells: the first, unless a later one is about much more time. Several
    findings of that kind are about different times.

    All findings together cannot cost more than a step takes, those about communication not more than is
    exposed, and those about late ranks not more than the others wait for the last one.

    Args:
        view: of the run.
        findings: in their order; an error costs the run, not time.
    """
    left = _budgets(view)
    at_line: dict[str, Finding] = {}
    found = []
    for finding in findings:
        cost = finding.cost_ms
        if finding.where and finding.rank is None and finding.cost_s and finding.severity != "error":
            first = at_line.setdefault(finding.where, finding)
            if first.kind != finding.kind and (first.cost_s or 0.0) > MOST * finding.cost_s:
                continue
        if cost is not None and finding.severity != "error":
            parts = _parts(finding)
            bounds = () if kind_of(finding).slows_all else parts
            cost = max(0.0, min(cost, left["step"], *(left[part] for part in bounds)))
            for part in ("step", *parts):
                left[part] = max(0.0, left[part] - cost)
            if finding.cost_s is not None and finding.cost_ms:
                finding = replace(finding, cost_s=finding.cost_s * cost / finding.cost_ms)
            finding = replace(finding, cost_ms=cost)
        found.append(finding)
    return found


def _parts(finding: Finding) -> Sequence[str]:
    """What it shares with other findings, beside the step."""
    kind = kind_of(finding)
    if kind.explains == "late" and finding.rank is None and kind.part != "late":
        return ()
    return (kind.explains,) if kind.explains else ()


def _budgets(view: RunView) -> dict[str, float]:
    steps = view.judged
    return {
        # A pause may fall between two steps, outside every step's wall time.
        "step": _total(view.step_spans.max(axis=1) if steps.wall.size else np.empty(0)),
        "exposed": _total(view.exposure.least),
        # A rank that is alone is not late, whatever holds it up.
        "late": _total(_late(view) if len(view.lateness) and len(steps.ranks) > 1 else np.empty(0)),
    }


def _late(view: RunView) -> Float64:
    """For how long the others wait for the last rank; where most are late, for how long the earliest one does."""
    own = view.judged.own[view.lateness.rows]
    if any(late.than is not None for late in view.late_ranks):
        return np.asarray(own.max(axis=1) - own.min(axis=1))
    return np.asarray(np.maximum(view.lateness.extra.max(axis=1), beyond_mean(own)))


def _total(values: Float64) -> float:
    """What there is per step, on average or typically; endless if it is not known."""
    known = values[~np.isnan(values)]
    return max(float(known.mean()), median(known)) if len(known) else float("inf")
