"""The fingerprints of parameters as the ranks took them, and what their comparison gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Int64


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
