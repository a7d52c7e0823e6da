"""Whether something takes a larger part of one sample of looks than of another, beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from pyddpdiag.trace.rows import Int64

ERROR: Final = 0.01
"""How often the largest of the differences that were looked at is called one where there is none: as with the bounds of
medians, 99% are sure."""


@dataclass(frozen=True)
class Sample:
    """Looks by cluster: those of one step of one rank may all have met one and the same wait.

    `hits[i]` of the `looks[i]` of cluster i saw it.
    """

    hits: Int64
    looks: Int64

    @property
    def share(self) -> float:
        """Of all looks; 0 without any."""
        return float(self.hits.sum()) / max(1, int(self.looks.sum()))

    @property
    def _adjusted(self) -> tuple[float, float]:
        """The share with one look more of either kind, and its variance.

        Agresti and Caffo (2000), "Simple and effective confidence intervals for proportions and differences of
        proportions result from adding two successes and two failures", The American Statistician 54: without these,
        a sample without hits would have no variance. The looks of a cluster are no independent ones: the variance is
        that of a share of clusters where that is larger (Cochran, Sampling Techniques, 1977, section 3.12).
        """
        count = int(self.looks.sum()) + 2
        share = (int(self.hits.sum()) + 1) / count
        variance = share * (1 - share) / count
        clusters = int(np.count_nonzero(self.looks))
        if clusters < 2:
            return share, variance
        apart = float(((self.hits - self.share * self.looks) ** 2).sum())
        return share, max(variance, clusters / (clusters - 1) * apart / count**2)

    def exceeds(self, other: Sample, compared: int) -> bool:
        """Whether its share is larger, by the normal approximation; `compared`: among how many such differences it is
        the largest (Bonferroni)."""
        mine, mine_variance = self._adjusted
        theirs, their_variance = other._adjusted
        sure = NormalDist().inv_cdf(1 - ERROR / max(1, compared))
        return mine - theirs > sure * sqrt(mine_variance + their_variance)


def joined(samples: Sequence[Sample]) -> Sample:
    """All clusters of these as one sample."""
    return Sample(
        np.concatenate([each.hits for each in samples]), np.concatenate([each.looks for each in samples])
    )


__all__ = ["Sample", "joined"]
