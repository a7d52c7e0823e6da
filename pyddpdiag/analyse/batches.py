"""What the ranks' sidecars say of their batches: how many each has, and which ranks are given the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_STEPS, MATTERS_SHARE, TWICE, WORK_SHARE
from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.settings import odd_ones, training_loader
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.words import listed

SAME_SIZES: Final = (
    "Give all ranks batches of about the same size: where samples differ in length, sort them by length and deal them "
    "out to the ranks in turns, or limit a batch by its values and not by its samples."
)


@dataclass(frozen=True)
class UnevenBatches:
    """Samples and batches of an epoch by rank, where the ranks do not have equally many batches."""

    samples: Mapping[int, int]
    batches: Mapping[int, int]

    @property
    def said(self) -> str:
        """In words, for the first ranks."""
        odd = odd_ones(self.batches)
        first = sorted(self.batches, key=lambda rank: (rank not in odd, rank))
        return "an epoch has " + listed(
            (f"{self.batches[rank]} batches ({self.samples[rank]} samples) on rank {rank}" for rank in first),
            4,
        )


def uneven_batches(sidecars: Mapping[int, Sidecar]) -> UnevenBatches | None:
    """None: every rank has as many, or it is not known of all that have a sidecar.

    Whether a loader drops an incomplete batch is not known, so one batch more for it is no difference.
    """
    loaders = {rank: training_loader(sidecar) for rank, sidecar in sidecars.items()}
    sizes = {
        rank: (one.length, one.batch_size)
        for rank, one in loaders.items()
        if one is not None and one.length and one.batch_size
    }
    if len(sizes) < max(2, len(sidecars)):
        return None
    whole = {rank: length // size for rank, (length, size) in sizes.items()}
    begun = {rank: -(-length // size) for rank, (length, size) in sizes.items()}
    if len(set(whole.values())) == 1 or len(set(begun.values())) == 1:
        return None
    return UnevenBatches({rank: length for rank, (length, _) in sizes.items()}, begun)


def out_of_batches(sidecars: Mapping[int, Sidecar], ranks: Iterable[int]) -> UnevenBatches | None:
    """The ranks' batches, if these ranks have fewer than others."""
    uneven = uneven_batches(sidecars)
    most = max(uneven.batches.values()) if uneven else 0
    return uneven if uneven and all(uneven.batches[rank] < most for rank in ranks) else None


@dataclass(frozen=True)
class GivenBatches:
    """What ranks gave the modules that they have in common, in the passes that are known of all of them.

    `marks`: of each rank, checksums in the same order.
    """

    marks: Mapping[int, tuple[int, ...]]

    def same(self) -> list[tuple[int, ...]]:
        """The sets of ranks that were given the same."""
        sets: dict[tuple[int, ...], list[int]] = {}
        for rank, marks in self.marks.items():
            sets.setdefault(marks, []).append(rank)
        return [tuple(some) for some in sets.values() if len(some) > 1]


def given_batches(sidecars: Mapping[int, Sidecar]) -> list[GivenBatches]:
    """Of each set of ranks whose modules are in the same process groups, as far as they can be compared.

    Ranks in other groups share no data, or all of it: those of tensor parallelism do.
    """
    sets: dict[frozenset[tuple[int, int]], dict[int, dict[tuple[int, int], int]]] = {}
    for rank, sidecar in sorted(sidecars.items()):
        given = {
            index: marks for index, marks in sidecar.training.batches.items() if index in sidecar.modules
        }
        marks = {(index, at): mark for index, some in given.items() for at, mark in some.items() if mark}
        # What another module was given, which nobody could read, may be what differs.
        if all(sum(of == index for of, _ in marks) >= TWICE for index in given):
            key = frozenset((index, sidecar.modules[index].group) for index in given)
            sets.setdefault(key, {})[rank] = marks
    found = []
    for by_rank in sets.values():
        common = sorted(set.intersection(*(set(marks) for marks in by_rank.values())))
        if len(by_rank) > 1 and len(common) >= TWICE:
            found.append(
                GivenBatches(
                    {rank: tuple(marks[place] for place in common) for rank, marks in by_rank.items()}
                )
            )
    return found


@dataclass(frozen=True)
class LargerBatches:
    """How many values the batches of a rank have, and those of the others, in the median of so many passes."""

    values: int
    of_others: int
    passes: int


def larger_batches(sidecars: Mapping[int, Sidecar], rank: int) -> LargerBatches | None:
    """None: they are surely not larger than the middle of the others' by a share that matters, or it is not known."""
    ranks, values = _values(sidecars)
    if rank not in ranks or len(ranks) < 2 or not len(values):
        return None
    place = ranks.index(rank)
    own, others = values[:, place], np.median(np.delete(values, place, axis=1), axis=1)
    if sure_median(own / others) <= 1.0 + MATTERS_SHARE:
        return None
    return LargerBatches(round(float(np.median(own))), round(float(np.median(others))), len(values))


def uneven_sizes(sidecars: Mapping[int, Sidecar]) -> tuple[int, int] | None:
    """How many values the smallest and the largest batch have that were seen, if the ranks' batches differ as much as
    work that differs (`WORK_SHARE`); None: they do not, or it is not known."""
    ranks, values = _values(sidecars)
    if len(ranks) < 2 or len(values) < LEAST_STEPS:
        return None
    spread = values.std(axis=1, ddof=1) / values.mean(axis=1)
    return (round(values.min()), round(values.max())) if float(np.median(spread)) >= WORK_SHARE else None


def _values(sidecars: Mapping[int, Sidecar]) -> tuple[list[int], Float64]:
    """The ranks, and how many values each one's batches have in the passes that are known of all: [passes, ranks]."""
    given = {
        rank: {
            (index, at): n for index, some in one.training.batch_values.items() for at, n in some.items() if n
        }
        for rank, one in sorted(sidecars.items())
    }
    common = sorted(set.intersection(*map(set, given.values()))) if given else []
    return list(given), np.array([[one[place] for one in given.values()] for place in common], np.float64)
