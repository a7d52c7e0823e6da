"""Medians of many groups at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from pyddpdiag.model.stats import Stat

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
QUANTILES = (0.5, 0.95)

FEW: Final = 64
"""With fewer values per group, a loop over the groups does not pay off."""


def stats_by(values: Float64, codes: npt.NDArray[np.int64], groups: int) -> list[Stat]:
    """Median and 95th percentile of `values` by group.

    Args:
        values: float64; NaN is left out.
        codes: the group of each value, 0 to groups - 1.
    """
    known = ~np.isnan(values)
    values, codes = values[known], codes[known]
    count = np.bincount(codes, minlength=groups)
    start = np.cumsum(count) - count
    values = _sorted(values, codes, start)
    columns: list[list[float | None]] = []
    for quantile in QUANTILES:
        place = np.maximum(count - 1, 0) * quantile
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(count - 1, 0))
        column = np.full(groups, np.nan)
        some = count > 0
        below, above = values[(start + low)[some]], values[(start + high)[some]]
        column[some] = below + (above - below) * (place - low)[some]
        columns.append(
            [value if has else None for value, has in zip(column.tolist(), some.tolist(), strict=True)]
        )
    return [Stat(median, p95) for median, p95 in zip(*columns, strict=True)]


def _sorted(values: Float64, codes: npt.NDArray[np.int64], start: npt.NDArray[np.int64]) -> Float64:
    """The values by group and size; `start` is where each group begins."""
    if len(values) < FEW * len(start):
        return values[np.lexsort((values, codes))]
    # Sorting by group is cheap, especially for 16-bit numbers, and so is sorting each group's values
    # separately.
    if len(start) > 1:
        values = values[np.argsort(codes.astype(np.min_scalar_type(len(start))), kind="stable")]
    else:
        values = values.copy()
    for part in np.split(values, start[1:]):
        part.sort()
    return values


def stat(values: Float64) -> Stat:
    """Median and 95th percentile of all values that are not NaN."""
    return stats_by(values, np.zeros(len(values), np.int64), 1)[0]


def sure_median(values: Float64) -> float:
    """A value that the median exceeds with 99% confidence, by order statistics (no shape is assumed).

    With fewer than about six values it is the least of them, which is less sure than that.
    """
    return _ordered(values, lambda known: _sure_place(len(known)))


def median_at_most(values: Float64) -> float:
    """A value below which the median lies with 99% confidence: the counterpart of `sure_median`."""
    return _ordered(values, lambda known: len(known) - 1 - _sure_place(len(known)))


def _ordered(values: Float64, place: Callable[[Float64], int]) -> float:
    known = np.sort(values[~np.isnan(values)])
    return float(known[place(known)]) if len(known) else float("nan")


def _sure_place(count: int) -> int:
    # The count of values below the true median is binomial(n, 1/2); 2.33 standard deviations are 99%
    # one-sided.
    return int(max(0, np.floor(count / 2 - 2.33 * np.sqrt(count) / 2)))
