"""How much evidence a finding about time needs, the same for all checks (docs/findings.md)."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.findings import Confidence

LEAST_STEPS: Final = 4
MANY_STEPS: Final = 10
LEAST_MS: Final = 1.0
HEALTHY_SHARE: Final = 0.10
"""A run is healthy only where the evidence excludes a cost of this share of a step."""

MATTERS_SHARE: Final = 0.05
"""A mistake in the script that surely costs this share of a step is a warning; a cheaper one is a note."""


def matters(cost_ms: float, step_ms: float) -> bool:
    """Whether a mistake that is sure costs enough to be a warning."""
    return cost_ms >= MATTERS_SHARE * step_ms > 0


def confidence(steps: int) -> Confidence:
    """The confidence of a finding over this many steps."""
    return "high" if steps >= MANY_STEPS else "medium"
