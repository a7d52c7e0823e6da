"""What the verdict is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "note"]
Confidence = Literal["certain", "high", "medium", "low"]
Status = Literal["healthy", "findings", "cannot_tell"]


@dataclass(frozen=True)
class Finding:
    """One thing found.

    `error`: it failed or the result may be wrong. `warning`: it costs time. `note`: worth knowing, nothing to
    blame. `evidence` holds the numbers that the message rests on, with the unit in each name. `change_mind`
    says what would make this finding wrong.
    """

    kind: str
    severity: Severity
    message: str
    confidence: Confidence
    rank: int | None = None
    bucket: str | None = None
    parameter: str | None = None
    evidence: Mapping[str, float | int | str | None] = field(default_factory=dict)
    change_mind: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer in one line, and the findings behind it, the weightiest first."""

    status: Status
    line: str
    findings: tuple[Finding, ...]
