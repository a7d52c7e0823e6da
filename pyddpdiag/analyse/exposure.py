"""How much of a step is spent waiting for buckets after backward, or for data, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyddpdiag.analyse import bounds
from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.shares import Share, share_of_median, share_of_sums
from pyddpdiag.analyse.step_matrix import StepMatrix, exposed_ms, median, step_walls
from pyddpdiag.analyse.windows import Stretches, stretches
from pyddpdiag.model.findings import Confidence
from pyddpdiag.model.words import milliseconds


@dataclass(frozen=True, eq=False)
class Exposure:
    """Exposed communication that no late rank explains, over the judged steps.

    Attributes:
        least: of each step, on the rank that waits least: the last to arrive doesn't wait for others; ms.
        wall: of each step; ms.
        median_step_ms: the median step.
        typical: the median's share of the median step.
        sums: the share of all time; tells what medians leave out.
        repeated: the same without the few steps that expose most.
        can_judge: whether there are steps enough.
    """

    least: Float64
    wall: Float64
    median_step_ms: float
    typical: Share
    sums: Share
    repeated: Share
    can_judge: bool

    @property
    def typical_ms(self) -> float:
        """Exposed in a typical step; NaN: not known."""
        return median(self.least)

    @property
    def mean_ms(self) -> float:
        """Exposed per step on average; NaN: not known."""
        return float(np.nanmean(self.least)) if self.typical.steps else float("nan")

    @property
    def is_typical(self) -> bool:
        """Whether a typical step exposes enough to be found."""
        return self._judged(sure_median(self.least), self.typical.at_least)

    @property
    def is_found(self) -> bool:
        """Whether it costs enough to be found, in a typical step or by its sum."""
        return self.is_typical or self._judged(self.mean_ms, self.repeated.at_least)

    @property
    def cost_ms(self) -> float:
        """What it costs per step."""
        return self.typical_ms if self.is_typical else self.mean_ms

    @property
    def step_ms(self) -> float:
        """The step that this is a part of: the median one, or the average where only the sum tells."""
        by_sum = self.typical.steps and not self.is_typical
        return float(np.nanmean(self.wall)) if by_sum else self.median_step_ms

    @property
    def confidence(self) -> Confidence:
        """`low` where it is no more than other load on the machine may cause."""
        return bounds.confidence(self.typical.steps) if self.is_large else "low"

    @property
    def share(self) -> float:
        """What it costs, as a share of a step."""
        return self.typical.value if self.is_typical else self.sums.value

    @property
    def of_step(self) -> str:
        """What it costs, and of what: of the median step, as in the tables; else on average, and both are named."""
        found = f"{milliseconds(self.cost_ms)} of {milliseconds(self.step_ms)} per step"
        if self.is_typical:
            return found
        typical = f"{milliseconds(self.typical_ms)} of {milliseconds(self.median_step_ms)}"
        return f"{found} on average ({typical} in a typical one)"

    @property
    def is_large(self) -> bool:
        """Whether a typical step exposes more than other load on the machine may cause."""
        return self.is_typical and self.typical.at_least >= bounds.LARGE_SHARE

    @cached_property
    def span(self) -> Stretches | None:
        """The parts of the run in which it is large; None: there are none."""
        return stretches(self.least - np.maximum(bounds.LEAST_MS, bounds.LARGE_SHARE * self.wall))

    def within(self, span: Stretches) -> Exposure:
        """The same of these parts alone."""
        wall = self.wall[span.rows]
        return exposure_of(self.least[span.rows], wall, median(wall), can_judge=self.can_judge)

    def is_worth(self, cost_ms: float) -> bool:
        """Whether a part of it is large enough to be named as the cause."""
        return cost_ms >= max(bounds.LEAST_MS, bounds.MATTERS_SHARE * self.step_ms)

    def _judged(self, least_ms: float, share: float) -> bool:
        return (
            self.can_judge
            and self.typical.steps >= bounds.LEAST_STEPS
            and least_ms >= bounds.LEAST_MS
            and share >= bounds.HEALTHY_SHARE
        )


def exposure(steps: StepMatrix) -> Exposure:
    """The exposed communication of the judged steps."""
    least, wall = exposed_ms(steps), step_walls(steps)
    return exposure_of(least, wall, steps.wall_ms, can_judge=steps.can_judge)


def exposure_of(least: Float64, wall: Float64, step_ms: float, *, can_judge: bool) -> Exposure:
    """The same from the values of each step: `least` and `wall` as in `Exposure`, `step_ms` the median step."""
    rest = np.argsort(np.nan_to_num(least), kind="stable")[: max(0, len(least) - bounds.SEVERAL)]
    return Exposure(
        least,
        wall,
        step_ms,
        share_of_median(least, step_ms),
        share_of_sums(least, wall),
        share_of_sums(least[rest], wall[rest]),
        can_judge,
    )
