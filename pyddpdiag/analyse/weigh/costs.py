"""What findings cost in the whole run, and how long that took."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding


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
