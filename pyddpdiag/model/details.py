"""What a page shows beyond the report: single steps on one clock, lateness by bucket, gradient norms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Events:
    """Records of one kind of one rank as columns; `times` is [records, times of the kind], ns, 0 = not seen.

    Times are on the run's common clock. `name` is a number into `names`, where records of this kind have one.
    """

    step: Int64
    reference: UInt64
    group: UInt64
    sequence: UInt64
    bytes: Int64
    times: Int64
    names: tuple[str, ...] = ()
    name: Int64 | None = None

    def __len__(self) -> int:
        """Number of records."""
        return len(self.step)

    def take(self, chosen: npt.NDArray[np.bool_]) -> Events:
        """The chosen records."""
        columns = ("step", "reference", "group", "sequence", "bytes", "times", "name")
        taken = {each: getattr(self, each)[chosen] for each in columns if getattr(self, each) is not None}
        return replace(self, **taken)

    def name_of(self, place: int) -> str:
        """The name of one record."""
        return self.names[int(self.name[place])] if self.name is not None else ""


@dataclass(frozen=True, eq=False)
class RankTimeline:
    """What one rank did in some steps, or in all. Columns of `times` are those of the trace's records of the kind."""

    rank: int
    buckets: Events
    passes: Events
    steps: Events
    collectives: Events
    phases: Events

    def take(self, steps: Int64) -> RankTimeline:
        """Some of its steps; all of its phases, which have none."""

        of_steps = {name: getattr(self, name) for name in ("buckets", "passes", "steps", "collectives")}
        return replace(
            self, **{name: events.take(np.isin(events.step, steps)) for name, events in of_steps.items()}
        )


@dataclass(frozen=True, eq=False)
class Lateness:
    """How long after the first rank each rank brought each bucket: medians over some steps, [ranks, buckets] in ms.

    NaN = not known. `steps` is how many steps there are, `clock_error_ms` the possible error of the
    clocks (None: unbounded).
    """

    ranks: tuple[int, ...]
    buckets: tuple[str, ...]
    median_ms: Float64
    steps: int
    clock_error_ms: float | None


@dataclass(frozen=True, eq=False)
class GradientNorms:
    """The norm of each rank's own gradient in the watched steps: one row per rank and step, by rank and step.

    NaN: it is not finite, or not known. `maximum` is the largest absolute value, `non_finite` how many values are not
    finite.
    """

    rank: Int64
    step: Int64
    norm: Float64
    maximum: Float64
    non_finite: Int64

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.step)


@dataclass(frozen=True)
class Loss:
    """The training loss after each epoch, as `pyddpdiag train` wrote it beside the trace."""

    epoch: tuple[int, ...]
    train_loss: tuple[float | None, ...]
    test_loss: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]
    elapsed_s: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class RunDetails:
    """What was read of the traces for a page.

    `timelines` hold the steps `shown`, each of which has a reason; `opens` is the one to show first.
    """

    shown: Mapping[int, str]
    timelines: tuple[RankTimeline, ...]
    lateness: Lateness | None
    norms: GradientNorms
    loss: Loss | None = None
    opens: int | None = None
