"""What a report expects of cures: to be compared with what a trial of them measures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyddpdiag.model import Finding

# The option of `pyddpdiag run` that each number of a finding is about.
_EXPECTED: Final = {"shared_memory_saves_ms": "--shared-memory"}
_OF_BUCKETS: Final = ("single_bucket", "small_buckets", "large_last_bucket")


def predicted_savings(findings: Iterable[Finding]) -> dict[str, float]:
    """What a step would take less with a cure, in ms, by its option: what the findings' advice rests on."""
    found: dict[str, float] = {}
    for finding in findings:
        for name, option in _EXPECTED.items():
            value = finding.evidence.get(name)
            if isinstance(value, (int, float)):
                found.setdefault(option, float(value))
        if finding.kind in _OF_BUCKETS and finding.cost_ms is not None:
            found.setdefault("--bucket-cap-mb", finding.cost_ms)
    return found


__all__ = ["predicted_savings"]
