"""What is known of the gradients: the buckets of watched passes as columns, and the steps in which all were finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from pyddpdiag.analyse.distinct import without
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.trace.layout import Flag, GradientValue, Kind, Records
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64, UInt64

_NOT_KNOWN: Final = int(np.array(np.nan).view(np.int64))

Number = TypeVar("Number", np.int64, np.uint64)


@dataclass(frozen=True, eq=False)
class WatchedBuckets:
    """One row per rank and watched bucket, by rank, in the order in which they were recorded.

    Also one row per rank and step in which all buckets were seen to be finite though they were not watched; its
    `reference` is 0.

    `non_finite` counts the values of the rank's own gradient that are not finite; `parameter` holds the first
    of them (index in its module, -1: none). `checksum` is that of the sum; 0: not taken. `sum_squares`,
    `absolute_maximum` and `level`, the mean over its parameters of the logarithm of each one's sum of squares, are of
    the rank's own gradient, NaN: not known; `elements` is how many values it has.
    """

    rank: Int64
    step: Int64
    group: UInt64
    sequence: UInt64
    reference: UInt64
    module: Int64
    non_finite: Int64
    parameter: Int64
    checksum: Int64
    sum_squares: Float64
    absolute_maximum: Float64
    elements: Int64
    level: Float64

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rank)


def rank_watched(trace: RankTrace) -> WatchedBuckets:
    """The gradient records of whole buckets of one rank."""
    records = trace.of_kind(Kind.GRADIENT)
    records = records[(records["flags"] & Flag.PARAMETER) == 0]
    values = records["times"]
    level = values[:, GradientValue.LEVEL]
    steps = records["step"].astype(np.int64)
    finite = without(_finite_steps(trace.of_kind(Kind.BUCKET)), steps)

    def column(of_records: npt.NDArray[Number], of_steps: int) -> npt.NDArray[Number]:
        return np.concatenate([of_records, np.full(len(finite), of_steps, of_records.dtype)])

    return WatchedBuckets(
        rank=np.full(len(records) + len(finite), trace.rank, np.int64),
        step=np.concatenate([steps, finite]),
        group=column(records["group"], 0),
        sequence=column(records["sequence"], 0),
        reference=column(records["reference"], 0),
        module=column(records["module"].astype(np.int64), 0),
        non_finite=column(values[:, GradientValue.NON_FINITE], 0),
        parameter=column(values[:, GradientValue.PARAMETER], -1),
        checksum=column(values[:, GradientValue.CHECKSUM], 0),
        sum_squares=_floats(column(values[:, GradientValue.SUM_SQUARES], _NOT_KNOWN)),
        absolute_maximum=_floats(column(values[:, GradientValue.ABSOLUTE_MAXIMUM], _NOT_KNOWN)),
        elements=column(values[:, GradientValue.ELEMENTS], 0),
        level=_floats(column(np.where(level == 0, _NOT_KNOWN, level), _NOT_KNOWN)),
    )


def _floats(bits: Int64) -> Float64:
    return np.ascontiguousarray(bits).view(np.float64)


def _finite_steps(buckets: Records) -> Int64:
    """The steps in which every bucket was seen to be finite."""
    seen = (buckets["flags"] & Flag.FINITE) > 0
    return without(buckets["step"][seen], buckets["step"][~seen]).astype(np.int64)


def watched_buckets(parts: Sequence[WatchedBuckets]) -> WatchedBuckets:
    """The watched buckets of all ranks."""
    return WatchedBuckets(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in WatchedBuckets.__dataclass_fields__
        }
    )
