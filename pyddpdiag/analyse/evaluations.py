"""Evaluations in which every rank goes through the same data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.training import Evaluated


@dataclass(frozen=True)
class FullEvaluation:
    """`passes` over a loader of `samples` samples (None: not known), in which all `ranks` get the same batches.

    `took_s`: the passes in sum, on the rank that was quickest. `where`: the line that takes the batches; empty: not
    known. `compared`: passes whose batches were compared.
    """

    ranks: tuple[int, ...]
    sampler: str
    samples: int | None
    passes: int
    took_s: float
    where: str
    compared: int

    @property
    def saved_s(self) -> float:
        """What they would take less if each rank had its part of the data."""
        return self.took_s * (1 - 1 / len(self.ranks))


def full_evaluations(sidecars: Mapping[int, Sidecar]) -> tuple[FullEvaluation, ...]:
    """The evaluations that each of these ranks makes in full, the longest first.

    Their batches tell: ranks whose data sets are parts of one have other batches. An evaluation whose batches could not
    be read, or whose order is another on each rank, is left out, and one of a single rank is none.
    """
    if len(sidecars) < 2:
        return ()
    first, *others = (one.training.evaluated for _, one in sorted(sidecars.items()))
    found = []
    for mine in first:
        theirs = [next((one for one in each if _is_same(mine, one)), None) for each in others]
        same = [mine, *(one for one in theirs if one is not None)]
        if mine.loader.distributed or len(same) < len(sidecars):
            continue
        passes, compared = (
            min(counts) for counts in zip(*((one.passes, len(one.marks)) for one in same), strict=True)
        )
        took_s = min(one.seconds * passes / one.passes for one in same)
        found.append(
            FullEvaluation(
                tuple(sorted(sidecars)),
                mine.loader.sampler,
                mine.loader.length,
                passes,
                took_s,
                mine.where,
                compared,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.took_s))


def _is_same(mine: Evaluated, other: Evaluated) -> bool:
    """Whether both went through the same batches of a like loader at the same line, as far as both know them."""
    pairs = list(zip(mine.marks, other.marks, strict=False))
    alike = mine.loader == other.loader and mine.where == other.where
    return alike and bool(pairs) and all(left == right != 0 for left, right in pairs)
