"""What exports are made of: the report, every occurrence of a bucket, and what each rank did in the chosen steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.occurrences import Occurrences
from pyddpdiag.analyse.steps import StepEnds
from pyddpdiag.model.details import GradientNorms, RankTimeline
from pyddpdiag.model.report import RunReport
from pyddpdiag.report.events import last_arrivals
from pyddpdiag.trace.rows import Int64


@dataclass(frozen=True)
class ClockBase:
    """One moment on both clocks of a rank, its trace's and the wall clock; `offset_ns` leads to the common clock."""

    monotonic_ns: int
    wall_ns: int
    offset_ns: int


@dataclass(frozen=True, eq=False)
class ExportedRun:
    """A run as it was read for exports. Timelines are on the common clock; `bases` and `step_ends` are by rank.

    `stacks`: lines that say how many looks saw which stack on which rank.
    """

    report: RunReport
    occurrences: Occurrences
    norms: GradientNorms
    timelines: Sequence[RankTimeline]
    bases: Mapping[int, ClockBase]
    step_ends: Mapping[int, StepEnds]
    stacks: Sequence[str] = ()

    def wall_s(self, rank: int, step: Int64) -> npt.NDArray[np.float64]:
        """When these steps of a rank ended, by its wall clock, seconds since 1970; like the one before if not known."""
        base, ends = self.bases[rank], self.step_ends[rank]
        known = ends.at_ns > 0
        if not known.any():
            return np.full(len(step), base.wall_ns / 1e9)
        at = np.maximum(0, np.searchsorted(ends.step[known], step, "right") - 1)
        return np.asarray((base.wall_ns + (ends.at_ns[known][at] - base.monotonic_ns)) / 1e9)

    @cached_property
    def first_base(self) -> ClockBase:
        """When the first rank's recorder was opened: no event of any rank was before."""
        return min(self.bases.values(), key=lambda base: base.monotonic_ns + base.offset_ns)

    @cached_property
    def last_arrivals(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By group and sequence of each bucket's all-reduce: when the last rank brought it, and which one."""
        return last_arrivals(self.timelines)
