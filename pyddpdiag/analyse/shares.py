"""Which share of a step something takes, and between which bounds that share lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.grouped import Float64, median_at_most, sure_median
from pyddpdiag.analyse.step_matrix import median

MOST_STEPS: Final = 2000
"""The advice never asks for more steps than this."""


@dataclass(frozen=True)
class Share:
    """A share of a step, 0 to 1, and its bounds of 99% confidence each; NaN: not known.

    `steps` is the number of steps that it rests on.
    """

    value: float
    at_least: float
    at_most: float
    steps: int

    def steps_to_tell(self, threshold: float) -> int | None:
        """About how many steps would tell on which side of the threshold it is; None: no sensible number would.

        The bounds shrink with the square root of the number of steps.
        """
        bound = self.at_most if self.value < threshold else self.at_least
        away = abs(self.value - threshold)
        if not away > 0:
            return None
        needed = self.steps * (abs(bound - self.value) / away) ** 2
        if not needed <= MOST_STEPS:
            return None
        return int(np.ceil(max(needed, 2 * self.steps) / 10) * 10)


def share_of_median(part: Float64, whole_ms: float) -> Share:
    """The median of `part` (ms, one value per step, NaN left out) as a share of a step of `whole_ms`."""
    share = part / whole_ms if whole_ms > 0 else np.full(len(part), np.nan)
    return Share(
        median(share), sure_median(share), median_at_most(share), int(np.count_nonzero(~np.isnan(share)))
    )


def share_of_sums(part: Float64, whole: Float64) -> Share:
    """The sum of `part` as a share of the sum of `whole` (ms, one value of each per step, NaN left out).

    A median says nothing of steps that are now and then much longer; a sum does. Its bounds are those of a
    ratio of means; a few extreme steps make them wide.
    """
    known = ~(np.isnan(part) | np.isnan(whole))
    part, whole = part[known], whole[known]
    count, total = len(part), float(whole.sum())
    if count < 2 or not total > 0:
        return Share(float("nan"), float("nan"), float("nan"), count)
    value = float(part.sum()) / total
    rest = part - value * whole
    error = float(np.sqrt((rest**2).sum() / (count * (count - 1)))) / (total / count)
    # Student's t at 99%, to a few percent.
    reach = 2.33 * (1.0 + 2.4 / (count - 1)) * error
    return Share(value, value - reach, value + reach, count)
