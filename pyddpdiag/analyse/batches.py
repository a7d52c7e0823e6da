"""What the ranks' sidecars say of the data: batches, evaluations, and files into which several ranks save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_STEPS, MATTERS_SHARE, TWICE, WORK_SHARE
from pyddpdiag.analyse.grouped import Float64, sure_median
from pyddpdiag.analyse.settings import odd_ones, training_loader
from pyddpdiag.analyse.spans import Coverage
from pyddpdiag.model.saves import Saved
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.training import Evaluated
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


@dataclass(frozen=True)
class SharedFile:
    """A file into which `ranks` save, each at least once.

    Attributes:
        ranks: of one machine.
        name: of the file.
        where: the line that saves it, on the lowest rank that knows it; empty: not known.
        times: saves of all of them.
        at_once: of the saves whose times are known, how many ran while another rank's did.
        known: how many that are.
    """

    ranks: tuple[int, ...]
    name: str
    where: str
    times: int
    at_once: int
    known: int


def shared_files(sidecars: Mapping[int, Sidecar], clocks: Mapping[int, str]) -> tuple[SharedFile, ...]:
    """The files into which several ranks save, those saved at the same time most often first.

    Args:
        clocks: what names the clock of each rank's times; ranks of one machine have the same, whatever host their
            containers call it. Empty: not known.
    """
    by_file: dict[tuple[str, str], dict[int, Saved]] = {}
    for rank, sidecar in sorted(sidecars.items()):
        for one in sidecar.training.saved if clocks.get(rank) else ():
            by_file.setdefault((clocks[rank], one.file), {})[rank] = one
    found = [_shared(saved) for saved in by_file.values() if len(saved) > 1]
    return tuple(sorted(found, key=lambda one: (-one.at_once, -one.times)))


def _shared(saved: Mapping[int, Saved]) -> SharedFile:
    ranks = tuple(sorted(saved))
    at_once = 0
    for rank, one in saved.items():
        theirs = [span for other, each in saved.items() if other != rank for span in each.spans]
        if one.spans and theirs:
            busy = Coverage(*np.array(theirs, np.int64).T)
            at_once += int(np.count_nonzero(busy.within(*np.array(one.spans, np.int64).T)))
    return SharedFile(
        ranks,
        saved[ranks[0]].name,
        next((saved[rank].where for rank in ranks if saved[rank].where), ""),
        sum(one.times for one in saved.values()),
        at_once,
        sum(len(one.spans) for one in saved.values()),
    )
