"""The steps of a run as columns: a long run has too many of them for one object each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class StepTable:
    """One row per step and rank, sorted by step, then rank. Milliseconds; NaN = not known.

    `other_ms` is the time in other collectives than buckets, outside of backward passes.

    `source` tells what the step's wall time is taken from: `step records`, `backward passes` or `buckets`.
    `left_out` are the steps that no median counts (warm-up).
    """

    step: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    wall_ms: npt.NDArray[np.float64]
    compute_ms: npt.NDArray[np.float64]
    data_wait_ms: npt.NDArray[np.float64]
    exposed_ms: npt.NDArray[np.float64]
    other_ms: npt.NDArray[np.float64]
    own_ms: npt.NDArray[np.float64]
    buckets: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    source: str
    left_out: tuple[int, ...]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.step)

    @property
    def judged(self) -> npt.NDArray[np.bool_]:
        """Rows that medians count."""
        return ~np.isin(self.step, np.array(self.left_out, np.int64))

    @cached_property
    def communication_ms(self) -> npt.NDArray[np.float64]:
        """Exposed communication itself: the least over a step's ranks, if all are known."""
        _, begin, sizes = np.unique(self.step, return_index=True, return_counts=True)
        return np.repeat(np.minimum.reduceat(self.exposed_ms, begin), sizes) if len(self) else self.exposed_ms

    @cached_property
    def late_ms(self) -> npt.NDArray[np.float64]:
        """The rest of what is exposed: waiting for the last rank."""
        return np.asarray(self.exposed_ms - self.communication_ms)

    def take(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> StepTable:
        """The chosen rows, by mask or index."""
        columns = {
            name: getattr(self, name)[chosen]
            for name in self.__dataclass_fields__
            if name not in ("source", "left_out")
        }
        return StepTable(**columns, source=self.source, left_out=self.left_out)
