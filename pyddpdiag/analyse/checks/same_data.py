"""All ranks train on the same data: their gradients are the same before they are averaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.training import training_loader
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.words import count, ranks

CLOSE: Final = 1e-5
"""Norms and maxima this close, relatively, are of the same data: threads sum in other orders. Those of two batches
are by chance only once in thousands of passes."""

LEAST_PASSES: Final = 2
LEAST_VALUES: Final = 16
"""Gradients of fewer values may be equal by chance: labels of a few classes, counts."""


@dataclass(frozen=True)
class _Same:
    ranks: tuple[int, ...]
    buckets: int
    steps: tuple[int, ...]
    exact: bool


def _look(view: RunView) -> Iterator[Finding]:
    found = max(_groups(view), key=lambda one: len(one.ranks), default=None)
    if found is None:
        return
    exact, passes = found.exact, len(found.steps)
    all_of_them = len(found.ranks) == view.run.world_size
    who = "all ranks" if all_of_them else ranks(found.ranks)
    how = "equal to the last bit" if exact else "equal but for rounding"
    why, advice = _why(view, found.ranks)
    yield Finding(
        kind="same_data",
        severity="error",
        message=f"{who} train on the same data: their gradients were {how} before they were averaged, in all "
        f"{count(passes, 'pass', 'passes')} that were looked at. {len(found.ranks)} ranks do the work "
        f"of one{why}.",
        confidence="certain" if exact and passes > LEAST_PASSES else "high",
        since_step=found.steps[0],
        evidence={
            "passes": passes,
            "all_reduces": found.buckets,
            "ranks": len(found.ranks),
            "equal_bits": int(exact),
        },
        change_mind="The ranks get the same batch on purpose, as in a benchmark with fixed data.",
        advice=advice,
    )


def _groups(view: RunView) -> Iterator[_Same]:
    """The ranks of each process group whose gradients were the same wherever somebody looked."""
    watched = view.watched
    usable = (
        (watched.reference != 0)
        & (watched.non_finite == 0)
        & (watched.sum_squares > 0)
        & np.isfinite(watched.sum_squares)
    )
    rows: dict[int, dict[int, dict[int, int]]] = {}
    for row in np.flatnonzero(usable).tolist():
        of_group = rows.setdefault(int(watched.group[row]), {})
        of_group.setdefault(int(watched.rank[row]), {})[int(watched.sequence[row])] = row
    for group in rows.values():
        if len(group) > 1:
            yield from _equal(view, group)


def _equal(view: RunView, by_rank: Mapping[int, Mapping[int, int]]) -> Iterator[_Same]:
    """Sets of ranks with the same gradients."""
    watched = view.watched
    common = sorted(set.intersection(*(set(rows) for rows in by_rank.values())))
    places = {rank: np.array([rows[key] for key in common], np.int64) for rank, rows in by_rank.items()}
    first = next(iter(places.values()))
    steps = tuple(sorted(set(watched.step[first].tolist())))
    if len(steps) < LEAST_PASSES or int(watched.elements[first].sum()) < LEAST_VALUES * len(steps):
        return
    if not _changes(view, first):
        return
    values = {
        rank: np.stack([watched.sum_squares[rows], watched.absolute_maximum[rows]])
        for rank, rows in places.items()
    }
    for same in _alike(values):
        exact = all(np.array_equal(values[same[0]], values[rank]) for rank in same)
        yield _Same(tuple(same), len(common), steps, exact)


def _alike(values: Mapping[int, Float64]) -> Iterator[list[int]]:
    """Sets of ranks with the same values. Only those whose first one is about as large are compared with each other."""
    who = np.array(sorted(values))
    first = np.array([values[rank][0, 0] for rank in who.tolist()])
    order = np.argsort(first, kind="stable")
    ordered = first[order]
    taken: set[int] = set()
    for place, one in enumerate(who.tolist()):
        if one in taken:
            continue
        begin, end = np.searchsorted(ordered, first[place] * np.array([1 - 2 * CLOSE, 1 + 2 * CLOSE]))
        near = [rank for rank in np.sort(who[order[begin:end]]).tolist() if rank > one and rank not in taken]
        same = [one, *(rank for rank in near if np.allclose(values[one], values[rank], rtol=CLOSE, atol=0))]
        taken.update(same)
        if len(same) > 1:
            yield same


def _changes(view: RunView, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    """Whether a bucket's gradient changes between steps; one that does not depends on no data."""
    seen: dict[int, float] = {}
    for reference, value in zip(
        view.watched.reference[rows].tolist(), view.watched.sum_squares[rows].tolist(), strict=True
    ):
        if abs(seen.setdefault(reference, value) - value) > CLOSE * value:
            return True
    return False


def _why(view: RunView, which: Sequence[int]) -> tuple[str, str]:
    """What is known of the loader, and the line to paste."""
    split = (
        "Give each rank its own part: DataLoader(dataset, batch_size=..., "
        "sampler=DistributedSampler(dataset, shuffle=True)), and sampler.set_epoch(epoch) in each epoch."
    )
    loaders = [training_loader(view.sidecars[rank]) for rank in which if rank in view.sidecars]
    known = [one for one in loaders if one is not None]
    if not known:
        return "", f"{split} Batches that the script makes itself: seed them with the rank."
    if not known[0].distributed:
        return f"; the loader's {known[0].sampler} gives every rank all of the data", split
    if len({one.rank for one in known}) < len(known) and known[0].rank is not None:
        return (
            f"; the {known[0].sampler} gives each of them the part of rank {known[0].rank}",
            "DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank()), or without both, "
            "which are the default.",
        )
    return "", "Look at what the data set returns: each rank must get other samples."


CHECK = Check(("same_data",), _look, rests_on="records")
