"""What the report says about each bucket, rank, other collective and single operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyddpdiag.model.now import ProcessEnd, ProcessStatus
from pyddpdiag.model.stats import BucketTimes, Stat
from pyddpdiag.model.words import milliseconds


@dataclass(frozen=True)
class BucketStats:
    """One bucket over all its occurrences.

    `count` is the number of occurrences that ended on every rank; `judged` of them are in the medians.
    `bytes` and `dtype` describe what travelled, `gradient_dtype` the gradients. `cost_ms` is the sum of their
    total times. `first_steps_only`: DDP's first layout, replaced when DDP rebuilt its buckets.
    `last_arrivals` counts, by rank, how often it was the last to arrive, where the clocks can tell.
    `shared_memory`: the ranks averaged it in memory that they share, in most of what `times` are of.
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
    shared_memory: bool = False


@dataclass(frozen=True)
class GroupStats:
    """A process group that reduced buckets, and the way they took.

    `shared_memory`: "used" if its ranks can average in shared memory; else why they cannot; empty if nobody asked.
    Of the buckets of the lasting layout, `shared_buckets` of `buckets` took it. Of these buckets' time,
    `waiting_fraction` passed until all ranks had begun, `summing_fraction` after that; None: not known.
    """

    group: str
    ranks: tuple[int, ...]
    backend: str
    shared_memory: str
    buckets: int
    shared_buckets: int
    waiting_fraction: float | None
    summing_fraction: float | None


@dataclass(frozen=True)
class ClockStats:
    """A rank's clock against the lowest rank's. None: nothing bounds the error."""

    offset_ms: float
    uncertainty_ms: float | None
    inconsistent: bool


@dataclass(frozen=True)
class RankStats:
    """One rank. Counters come from its trace, medians are over the judged steps.

    `in_flight` are operations (buckets and other collectives) that had begun and not ended. `own_ms` is the
    time from leaving one step's last all-reduce to handing over the next step's last bucket, without other
    collectives: what this rank itself needs. It was the last to arrive `last_arrivals` of `arrivals` times.
    Under gradient accumulation all times are of the steps up to one that synchronises, `micro_steps` of them (the
    median). `other_ms` is spent in other collectives than buckets, outside of backward passes.
    `ended_by`: the exception or signal that ended its process; empty: none is known.
    `cores` are those that it may use (0: not known), `threads` those of torch's pool, `load` its machine's load average
    (the median; None: not known), `memory_bytes` the most that it was seen to use of `machine_memory_bytes`.
    `process`, `silent_ms` and `beat_age_ms` describe its process when the trace was read (`RankNow`).
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
    other_ms: Stat
    own_ms: Stat
    last_arrivals: int
    arrivals: int
    clock: ClockStats
    process: ProcessStatus = "unknown"
    silent_ms: float | None = None
    beat_age_ms: float | None = None
    ended: ProcessEnd | None = None
    micro_steps: int = 1
    absent: int = 0
    ended_by: str = ""
    cores: int = 0
    threads: int = 0
    load: float | None = None
    memory_bytes: int = 0
    machine_memory_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether no record of this rank was lost, but for what newer ones replaced."""
        return not (self.dropped or self.torn or self.malformed or self.absent)

    @property
    def ended_well(self) -> bool:
        """Whether it closed its recorder, or its process came to its end without that."""
        return self.closed or self.ended == "orderly"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come of it."""
        return self.closed or self.ended is not None or self.process == "dead"


@dataclass(frozen=True)
class CollectiveStats:
    """Other Gloo operations of one name on one rank.

    `group`: the name of their process group; None: not known. `wait_ms`: the median time from this rank's begin to
    that of the last one; None where the calls of the ranks cannot be paired. `where`: the lines that call it most;
    empty: not known.
    """

    name: str
    rank: int
    count: int
    median_ms: float | None
    p95_ms: float | None
    total_ms: float
    in_flight: int
    group: str | None = None
    wait_ms: float | None = None
    where: str = ""


@dataclass(frozen=True)
class PhaseStats:
    """A named part of the program on one rank; `in_flight` counts those that have not ended."""

    name: str
    rank: int
    count: int
    median_ms: float | None
    total_ms: float
    in_flight: int


@dataclass(frozen=True)
class OpenOperation:
    """An operation that had begun and not ended.

    `open_ms`: how long at least; by the reader's clock if it runs beside the rank's process, else by the rank's
    newest record. `shared`: it is summed in shared memory; Gloo has a part in it only between hosts.
    """

    rank: int
    kind: str
    what: str
    sequence: int
    step: int
    bytes: int
    started: bool
    abandoned: bool
    open_ms: float
    shared: bool = False

    @property
    def lasted(self) -> str:
        """How long, to be added to a sentence; empty where nothing was recorded since it began."""
        return f", for at least {milliseconds(self.open_ms)}" if self.open_ms else ""


@dataclass(frozen=True)
class OperationError:
    """An operation that failed, with the text of its error.

    `at_ms`: when, on the common clock, since the lowest rank's recorder was opened; None: not known.
    """

    rank: int
    kind: str
    what: str
    sequence: int
    step: int
    text: str
    at_ms: float | None = None


@dataclass(frozen=True)
class Gap:
    """Occurrences of a group that one rank has no record of.

    They lie `before` its first record (overwritten or lost), `between` two records, or `after` its last one: the rank
    is then behind the others.
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
    """An all-reduce in which the ranks did different things: `field` differs between them.

    `operation` is the name of another collective, empty for a bucket's all-reduce.
    """

    group: str
    sequence: int
    step: int
    field: str
    values: Mapping[int, str]
    count: int
    operation: str = ""
