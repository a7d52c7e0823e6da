"""What the report says of each bucket, rank, other collective and single operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyddpdiag.model.stats import BucketTimes, Stat


@dataclass(frozen=True)
class BucketStats:
    """One bucket over all its occurrences.

    `count` are the occurrences that ended on every rank; `judged` of them are in the medians. `bytes` and
    `dtype` are of what travelled, `gradient_dtype` of the gradients. `cost_ms` is the sum of their total times.
    `first_steps_only`: DDP's first layout, replaced when DDP rebuilt its buckets. `last_arrivals` counts, by
    rank, how often it was the last to arrive, where the clocks can tell.
    """

    bucket: str
    module: int
    parameters: tuple[str, ...]
    bytes: int
    dtype: str
    gradient_dtype: str
    group: str
    group_size: int
    count: int
    judged: int
    incomplete: int
    first_step: int
    last_step: int
    first_steps_only: bool
    cost_ms: float
    times: BucketTimes
    last_arrivals: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ClockStats:
    """A rank's clock against the lowest rank's. None: nothing bounds the error."""

    offset_ms: float
    uncertainty_ms: float | None
    inconsistent: bool


@dataclass(frozen=True)
class RankStats:
    """One rank. Counters are of its trace, medians over the judged steps.

    `in_flight` are operations (buckets and other collectives) that had begun and not ended. `own_ms` is the
    time from leaving one step's last all-reduce to handing over the next step's last bucket, without other
    collectives: what this rank itself needs. `last_arrivals` of `arrivals` times it was the last to arrive.
    """

    rank: int
    host: str
    torch: str
    steps: int
    last_step: int | None
    records: int
    overwritten: int
    skipped: int
    dropped: int
    torn: int
    malformed: int
    in_flight: int
    errors: int
    closed: bool
    wall_ms: Stat
    compute_ms: Stat
    data_wait_ms: Stat
    exposed_ms: Stat
    own_ms: Stat
    last_arrivals: int
    arrivals: int
    clock: ClockStats


@dataclass(frozen=True)
class CollectiveStats:
    """Other Gloo operations of one name on one rank."""

    name: str
    rank: int
    count: int
    median_ms: float | None
    p95_ms: float | None
    total_ms: float
    in_flight: int


@dataclass(frozen=True)
class OpenOperation:
    """An operation that had begun and not ended. `open_ms`: at least so long, by the rank's latest record."""

    rank: int
    kind: str
    what: str
    sequence: int
    step: int
    bytes: int
    started: bool
    abandoned: bool
    open_ms: float


@dataclass(frozen=True)
class OperationError:
    """An operation that failed, with the text of its error."""

    rank: int
    kind: str
    what: str
    sequence: int
    step: int
    text: str


@dataclass(frozen=True)
class Gap:
    """Occurrences of a group that one rank has no record of.

    `before` its first (overwritten, or lost), `between`, and `after` its last: there it is behind the others.
    """

    rank: int
    group: str
    before: int
    between: int
    after: int
    last_sequence: int | None
    group_last_sequence: int


@dataclass(frozen=True)
class Mismatch:
    """An all-reduce in which the ranks did not do the same: `field` differs between them."""

    group: str
    sequence: int
    step: int
    field: str
    values: Mapping[int, str]
    count: int
