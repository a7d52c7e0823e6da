"""Everything that a report shows, independent of its presentation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from statistics import fmean

from pyddpdiag.model.account import RankAccount
from pyddpdiag.model.cube import Cube, RankParts
from pyddpdiag.model.findings import Verdict
from pyddpdiag.model.lines import Flame, LineStats
from pyddpdiag.model.links import LinkStats
from pyddpdiag.model.rows import (
    BucketStats,
    CollectiveStats,
    Gap,
    GroupStats,
    Mismatch,
    OpenOperation,
    OperationError,
    PhaseStats,
    RankStats,
)
from pyddpdiag.model.steps import StepTable
from pyddpdiag.model.tried import Tried

SCHEMA_VERSION = 1


@dataclass(frozen=True, eq=False)
class RunReport:
    """One run, analysed. `step` and `bucket` say what the tables were narrowed to; the verdict never is.

    `in_flight_total` and `errors_total` count all of them; only the first thousand are listed. `flames` and `cube` are
    in no saved report. `tried`: the trial of cures that took place in it, or of which it is a start; None: none did.
    """

    folder: str
    run_id: str
    world_size: int
    verdict: Verdict
    ranks: tuple[RankStats, ...]
    buckets: tuple[BucketStats, ...]
    steps: StepTable
    other_collectives: tuple[CollectiveStats, ...]
    in_flight_operations: tuple[OpenOperation, ...]
    in_flight_total: int
    errors: tuple[OperationError, ...]
    errors_total: int
    gaps: tuple[Gap, ...]
    mismatches: tuple[Mismatch, ...]
    warnings: tuple[str, ...]
    phases: tuple[PhaseStats, ...] = ()
    step: int | None = None
    bucket: str | None = None
    links: tuple[LinkStats, ...] = ()
    groups: tuple[GroupStats, ...] = ()
    lines: tuple[LineStats, ...] = ()
    flames: tuple[Flame, ...] = ()
    account: tuple[RankAccount, ...] = ()
    tried: Tried | None = None
    parts: tuple[RankParts, ...] = ()
    cube: Cube | None = None

    def summary(self) -> dict[str, float | str]:
        """Numbers and texts by name, for wandb, MLflow or TensorBoard; what is not known is left out.

        Of the mean step in ms: `step_ms` and its parts, each the mean over the ranks, as in `RankParts`.
        """
        found: dict[str, float | str | None] = {
            "status": self.verdict.status,
            "verdict": self.verdict.line,
            "world_size": self.world_size,
            "findings": len(self.verdict.findings),
        }
        for part in fields(RankParts)[1:] if self.parts else ():
            known = [value for rank in self.parts if (value := getattr(rank, part.name)) is not None]
            found[part.name] = fmean(known) if known else None
        for first in self.verdict.findings[:1]:
            found |= {"first_kind": first.kind, "first_rank": first.rank, "first_cost_ms": first.cost_ms}
            found |= {"first_line": first.where, "first_advice": first.advice or None}
        memory = max((rank.memory_bytes for rank in self.ranks), default=0)
        found["memory_bytes"] = memory or None
        return {name: value for name, value in found.items() if value is not None}
