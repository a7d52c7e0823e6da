"""The fingerprints of parameters and gradients as the ranks took them, and what a comparison of the former gives."""

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


@dataclass(frozen=True, eq=False)
class WeightMarks:
    """One row per rank, backward pass and parameter that was fingerprinted then.

    `number` is that of the module's pass, `bits` a checksum, `norm` the parameter's 2-norm.
    """

    rank: Int64
    group: Int64
    module: Int64
    number: Int64
    parameter: Int64
    step: Int64
    bits: Int64
    norm: Float64


@dataclass(frozen=True, eq=False)
class Compared:
    """One row per module, pass and parameter that more than one rank fingerprinted, by pass.

    `differs`: not all ranks have the same bits. `gap` is the largest difference of their norms, relative to the largest
    one. `bits` and `norms` have a column per rank of `ranks`; bits 0: this rank took none.
    """

    ranks: tuple[int, ...]
    group: Int64
    module: Int64
    number: Int64
    parameter: Int64
    step: Int64
    bits: Int64
    norms: Float64

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.module)

    def of_modules(self, modules: Sequence[int]) -> Compared:
        """Only the rows of these modules."""
        kept = np.isin(self.module, modules)
        columns = {name: column[kept] for name, column in vars(self).items() if name != "ranks"}
        return Compared(self.ranks, **columns)

    @property
    def differs(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of each row."""
        most = self.bits.max(axis=1, initial=0)
        least = np.where(self.bits == 0, most[:, None], self.bits).min(axis=1, initial=2**62)
        return np.asarray(least != most)

    @property
    def gap(self) -> Float64:
        """Of each row."""
        taken = self.bits != 0
        most = np.where(taken, self.norms, -np.inf).max(axis=1, initial=-np.inf)
        least = np.where(taken, self.norms, np.inf).min(axis=1, initial=np.inf)
        return np.asarray((most - least) / np.where(most > 0, most, 1.0))


def rank_weights(trace: RankTrace) -> WeightMarks:
    """The fingerprints of one rank."""
    records = trace.of_kind(Kind.WEIGHTS)
    words = np.ascontiguousarray(records["times"]).view(np.uint64)
    row, place = np.nonzero(words)
    taken = words[row, place]
    some = records[row]
    return WeightMarks(
        rank=np.full(len(row), trace.rank, np.int64),
        group=np.ascontiguousarray(some["group"]).view(np.int64),
        module=some["module"].astype(np.int64),
        number=(some["sequence"] & np.uint64(2**62 - 1)).astype(np.int64),
        parameter=some["index"].astype(np.int64) + place,
        step=some["step"].astype(np.int64),
        bits=(taken & np.uint64(0xFFFFFFFF)).astype(np.int64),
        norm=(taken >> np.uint64(32)).astype(np.uint32).view(np.float32).astype(np.float64),
    )


def compared_weights(parts: Sequence[WeightMarks]) -> Compared:
    """The fingerprints of all ranks side by side. What is not finite is no evidence: the bits of a NaN may differ."""
    marks = (
        {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        if parts
        else None
    )
    if marks is None:
        marks = {name: np.empty(0, np.int64) for name in _COLUMNS}
    finite = np.isfinite(marks["norm"])
    marks = {name: column[finite] for name, column in marks.items()}
    ranks, who = np.unique(marks["rank"], return_inverse=True)
    keys = np.stack([marks[name] for name in ("number", "group", "module", "parameter")], axis=1)
    rows, at = np.unique(keys, axis=0, return_inverse=True)
    at = at.reshape(-1)
    bits = np.zeros((len(rows), len(ranks)), np.int64)
    norms = np.full((len(rows), len(ranks)), np.nan)
    step = np.zeros(len(rows), np.int64)
    bits[at, who] = marks["bits"]
    norms[at, who] = marks["norm"]
    step[at] = marks["step"]
    both = np.count_nonzero(bits, axis=1) > 1
    return Compared(
        tuple(ranks.tolist()),
        number=rows[both, 0],
        group=rows[both, 1],
        module=rows[both, 2],
        parameter=rows[both, 3],
        step=step[both],
        bits=bits[both],
        norms=norms[both],
    )


_COLUMNS = tuple(WeightMarks.__dataclass_fields__)
