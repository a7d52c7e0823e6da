"""What is asked of a plan, and what it answers: plain values, as the JSON has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pyddpdiag.plan.paths import Path

SCHEMA_VERSION: Final = 1

Limit = Literal["latency", "bandwidth", "slowest rank"]
"""What a step of many ranks takes beyond that of one: rounds of the ring, bytes, or waiting for the slowest rank."""


@dataclass(frozen=True)
class Link:
    """A link that replaces the recorded one; None: as it was fitted to the run."""

    ms_per_byte: float | None = None
    latency_ms: float | None = None

    @property
    def is_given(self) -> bool:
        """Whether anything of it is."""
        return self.ms_per_byte is not None or self.latency_ms is not None


@dataclass(frozen=True)
class Row:
    """One setting. `step_ms` with its interval, and `exposed_ms` of it; None with the reason in `cannot_tell`.

    `ranks`, `bucket_cap_mb` (None: the recorded layout, or a size of each bucket in `bucket_cap_mb_list`), `path` and
    `straggler` (False: without) are the setting. `kind` is `recorded` (measured), `replayed` (the run itself, by the
    model) or `planned`. `efficiency`: the step of one of its ranks alone over this one.
    """

    kind: str
    setting: str
    ranks: int
    bucket_cap_mb: float | None = None
    bucket_cap_mb_list: tuple[float, ...] = ()
    path: Path = "gloo"
    straggler: bool = True
    buckets: int | None = None
    step_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    exposed_ms: float | None = None
    efficiency: float | None = None
    cannot_tell: str = ""


@dataclass(frozen=True)
class ScalingPoint:
    """So many ranks: their step, and their throughput over that of a rank alone."""

    ranks: int
    step_ms: float
    throughput: float


@dataclass(frozen=True)
class Scaling:
    """Throughput by number of ranks, with the recorded buckets.

    Attributes:
        alone_ms: the step of a rank alone.
        points: of 1, 2, 4, ... ranks.
        ends_at: so many ranks; beyond, twice the ranks give less than 1.5 times the throughput. None: it does not end.
        limit: what takes most of the step of twice as many; None: it does not end.
        limit_ms: how much of it.
    """

    alone_ms: float
    points: tuple[ScalingPoint, ...] = ()
    ends_at: int | None = None
    limit: Limit | None = None
    limit_ms: float | None = None


@dataclass(frozen=True)
class Plan:
    """All rows. `cannot_tell`: why there is none at all. `missed_fraction`: by how much the replay missed the run.

    `wire_pace`, `compute_pace`: how fast buckets and ranks go on while both do, of what they are alone; None: not
    known. `scaling`: None: other numbers of ranks cannot be told.
    """

    folder: str
    rows: tuple[Row, ...] = ()
    cannot_tell: str = ""
    steps: int = 0
    missed_fraction: float | None = None
    round_ms: float | None = None
    bandwidth_gbit: float | None = None
    wire_pace: float | None = None
    compute_pace: float | None = None
    scaling: Scaling | None = None

    @property
    def tells(self) -> bool:
        """Whether it answers anything that was asked."""
        planned = [row for row in self.rows if row.kind == "planned"]
        # The row without the straggler comes unasked.
        asked = [row for row in planned if row.straggler] or planned
        return any(row.step_ms is not None for row in asked)

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract (docs/plan.md)."""
        return {"schema_version": SCHEMA_VERSION, "kind": "plan", **asdict(self)}
