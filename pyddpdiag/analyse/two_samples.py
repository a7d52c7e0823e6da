"""Whether something takes longer per step in one sample of looks than in another, beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np

from pyddpdiag.analyse.bounds import CHANCE
from pyddpdiag.analyse.grouped import Float64


@dataclass(frozen=True)
class Sample:
    """The time at a place, step by step, as looks tell it.

    `ms`: of each step of each rank, 0 without a look. `look_ms`: for what one look stands.
    """

    ms: Float64
    look_ms: float

    @property
    def mean_ms(self) -> float:
        """Per step; 0 without any."""
        return float(self.ms.mean()) if len(self.ms) else 0.0

    @property
    def variance(self) -> float:
        """Of the mean, in ms^2.

        Looks at random moments are a Poisson process, and the variance of a count is the count. One look more is
        counted: a place that no look met may be one that the next would meet (as Agresti and Caffo do for proportions,
        The American Statistician 54, 2000). But all looks of a step may have met one and the same wait: where the steps
        differ by more than that, theirs is the variance (Cochran, Sampling Techniques, 1977, chapter 9).
        """
        steps = len(self.ms)
        if not steps:
            return 0.0
        of_looks = (float(self.ms.sum()) + self.look_ms) * self.look_ms / steps**2
        return max(of_looks, float(self.ms.var(ddof=1)) / steps) if steps > 1 else of_looks

    def exceeds(self, other: Sample, times: float, compared: int) -> bool:
        """Whether its mean is larger than so many times the other's: a test of two rates, by the normal approximation
        (Krishnamoorthy and Thomson, Journal of Statistical Planning and Inference 119, 2004).

        Args:
            other: what it is compared with.
            times: how many times as long it may take.
            compared: among how many such differences this is the largest (Bonferroni).
        """
        sure = NormalDist().inv_cdf(1 - CHANCE / max(1, compared))
        spread = sqrt(self.variance + times**2 * other.variance)
        return self.mean_ms - times * other.mean_ms > sure * spread


def joined(samples: Sequence[Sample]) -> Sample:
    """The steps of all of these."""
    return Sample(np.concatenate([each.ms for each in samples]), max(each.look_ms for each in samples))
