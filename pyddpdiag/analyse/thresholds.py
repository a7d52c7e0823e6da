"""How much evidence a finding about time needs, the same for all checks (docs/metrics.md)."""

from __future__ import annotations

from typing import Final

from pyddpdiag.model.findings import Confidence

LEAST_STEPS: Final = 4
MANY_STEPS: Final = 10
LEAST_MS: Final = 1.0
HEALTHY_SHARE: Final = 0.10
"""A run is healthy only where the evidence excludes a cost of this share of a step."""


def confidence(steps: int) -> Confidence:
    """The confidence of a finding over this many steps."""
    return "high" if steps >= MANY_STEPS else "medium"
