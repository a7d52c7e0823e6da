"""What each step's time went to on each rank: the one definition that tables, pages and checks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

OWN: Final = ("phase", "core", "blocked")
"""Of a rank's own time, besides computing: phases of the program, waiting for a core, and sleeping."""

PARTS: Final = ("data_wait", "compute", *OWN, "other", "late", "communication")
"""`other`: in other collectives than buckets. `late`: exposed communication beyond that of the rank that has least of
it, which is waiting for the last rank; the rest is `communication` itself."""


@dataclass(frozen=True, eq=False)
class Cube:
    """[steps, ranks] in ms for each of `PARTS`, which add up to the step on that rank; NaN: it has no such step.

    Of steps whose records were overwritten there is a row for each interval, at its first step, with all of its time.
    The first step of a run is in none. `split`: it is known what of the own time a rank sleeps; if not, `compute`
    holds that as well.
    """

    ranks: tuple[int, ...]
    step: npt.NDArray[np.int64]
    ms: Mapping[str, npt.NDArray[np.float32]]
    split: bool
