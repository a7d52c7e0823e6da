"""Medians of many groups at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyddpdiag.model import Stat

Float64 = npt.NDArray[np.float64]
QUANTILES = (0.5, 0.95)


def stats_by(values: Float64, codes: npt.NDArray[np.int64], groups: int) -> list[Stat]:
    """Median and 95th percentile of `values` by group.

    Args:
        values: float64; NaN is left out.
        codes: the group of each value, 0 to groups - 1.
        groups: number of groups.
    """
    known = ~np.isnan(values)
    values, codes = values[known], codes[known]
    order = np.lexsort((values, codes))
    values = values[order]
    count = np.bincount(codes, minlength=groups)
    start = np.cumsum(count) - count
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


def stat(values: Float64) -> Stat:
    """Median and 95th percentile of all values that are not NaN."""
    return stats_by(values, np.zeros(len(values), np.int64), 1)[0]


def sure_median(values: Float64) -> float:
    """A value that the median exceeds with 99% confidence, by order statistics (no shape is assumed).

    With fewer than about six values it is the least of them, which is less sure than that.
    """
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        return float("nan")
    # The count of values below the true median is binomial(n, 1/2); 2.33 standard deviations are 99%
    # one-sided.
    place = int(max(0, np.floor(len(values) / 2 - 2.33 * np.sqrt(len(values)) / 2)))
    return float(values[place])
