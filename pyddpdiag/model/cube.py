"""What each step's time went to on each rank: the one definition that tables, pages and checks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

SPANS: Final = ("forward", "backward", "after")
"""What a rank's own time of a step is part of: its forward passes, its backward passes until it waits for buckets, and
what follows the last of them, which is the optimizer and the end of the loop's body. The rest lies before forward."""

OWN: Final = ("phase", "core", "blocked")
"""Of a rank's own time, besides computing: phases of the program, waiting for a core, and sleeping."""

OWN_PARTS: Final = ("data_wait", "compute", *OWN)
"""All that a rank needs itself within a step, whoever waits meanwhile."""

PARTS: Final = (*OWN_PARTS, "other", "late", "communication")
"""`other`: in other collectives than buckets. `late`: exposed communication beyond that of the rank that has least of
it, which is waiting for the last rank; the rest is `communication` itself."""

BEFORE: Final = ("between", "calls_between")
"""Of the time from the end of the step before to the begin of a step: the rank's own, and that in collectives."""

NEEDED: Final = (*OWN_PARTS, "between")
"""All that a rank needs itself from one step to the next."""

CHARGED: Final = (*NEEDED, "other", "communication")
"""What time is charged to. Waiting for the last rank is charged to that rank, in the parts in which it needs more."""

PART_OF: Final = {
    "compute": "compute",
    "data": "data_wait",
    "core": "core",
    "disk": "blocked",
    "device": "compute",
    "blocked": "blocked",
}
"""Of a late rank's cause, the part in which it needs more."""

NAMES: Final = {
    "data_wait": "data",
    "compute": "compute",
    "phase": "named phases",
    "core": "waiting for a core",
    "blocked": "asleep",
    "between": "between steps",
    "other": "other collectives",
    "late": "waiting for the last rank",
    "communication": "on the wire",
}
"""What the parts are called wherever they are shown."""


@dataclass(frozen=True, eq=False)
class Cube:
    """[steps, ranks] in ms for each of `PARTS`, which add up to the step on that rank; NaN: it has no such step.

    Of steps whose records were overwritten there is a row for each interval, at its first step, with all of its time.
    The first step of a run is in none. `split`: it is known what of the own time a rank sleeps; if not, `compute`
    holds that as well. `spans`: the same for each of `SPANS`, which together are at most the own time without phases.
    """

    ranks: tuple[int, ...]
    step: npt.NDArray[np.int64]
    ms: Mapping[str, npt.NDArray[np.float32]]
    split: bool
    spans: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True)
class RankParts:
    """The mean judged step of one rank in ms; its parts are those of the `Cube`, and add up to `step_ms`.

    Of its own time, which is `compute_ms`, `core_ms` and `blocked_ms`, `forward_ms`, `backward_ms` and `after_ms` (the
    optimizer and what follows it) are the spans, and `before_ms` is the rest; None: not known.
    """

    rank: int
    step_ms: float
    data_wait_ms: float
    compute_ms: float
    core_ms: float
    blocked_ms: float
    phase_ms: float
    other_ms: float
    late_ms: float
    communication_ms: float
    before_ms: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    after_ms: float | None = None

    @property
    def own_ms(self) -> float:
        """What it needs itself, wherever that lies."""
        return self.compute_ms + self.core_ms + self.blocked_ms
