"""What the verdict is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Severity = Literal["error", "warning", "note"]
Confidence = Literal["certain", "high", "medium", "low"]
Status = Literal["healthy", "findings", "cannot_tell"]
EXIT_CODES: Final[dict[Status, int]] = {"healthy": 0, "findings": 1, "cannot_tell": 2}
"""What a command that judges a run exits with."""

Cause = Literal["compute", "data", "core", "disk", "device", "blocked"]
"""Why a rank is late: its own computing, its data, waiting for a processor core, for a disk or for its accelerator, or
blocked by something else."""


@dataclass(frozen=True)
class Finding:
    """One thing found.

    `error`: something failed or the result may be wrong. `warning`: it costs time. `note`: worth knowing,
    nothing to blame. `evidence` holds the numbers that the message rests on, with the unit in each name.
    `change_mind` says what would make this finding wrong.

    `rank` is the culprit, `peer` the rank at the other end where a link is meant, `since_step` the first step in
    which it was seen, `until_step` the last one if it ended before the run did, `cost_ms` what it costs per step,
    `cost_s` what it cost in the whole run so far, `where` the function and line of the script that it is at
    (`train.py:41 in load_labels`); None: there is none, or it is not known. `cause` is set only for a late
    rank. `among`: it is about these ranks, which never meet the others; empty: about all.
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
    peer: int | None = None
    since_step: int | None = None
    until_step: int | None = None
    cost_ms: float | None = None
    cost_s: float | None = None
    where: str | None = None
    cause: Cause | None = None
    among: tuple[int, ...] = ()


def culprit(ranks: Sequence[int]) -> int | None:
    """The rank of a finding about these ranks: the only one; None: there are several, or none."""
    return ranks[0] if len(ranks) == 1 else None


@dataclass(frozen=True)
class Charge:
    """Time of the judged steps that is charged to one rank, or to all alike (`rank` None), in one part of a step.

    `part` is one of `model.cube.CHARGED`, `share` is of all judged steps. `explained_s` is what findings account for,
    and `explained_by` are their kinds, the most important first. The charges of a run add up to its judged steps, as
    these are on average over the ranks, but for those below a hundredth, which are left out. `among`: as in a finding.
    """

    rank: int | None
    part: str
    seconds: float
    share: float
    explained_s: float = 0.0
    explained_by: tuple[str, ...] = ()
    among: tuple[int, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The answer in one line, the findings behind it, the most important first, and what the steps' time went to."""

    status: Status
    line: str
    findings: tuple[Finding, ...]
    charges: tuple[Charge, ...] = ()
