"""Everything that a report shows, independent of its presentation."""

from __future__ import annotations

from dataclasses import dataclass

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
