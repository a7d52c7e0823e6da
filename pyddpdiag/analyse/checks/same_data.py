"""Ranks train on the same data: their modules are given the same batches.

Where batches cannot be read, gradients may suggest it: those of all parameters are the same before they are averaged.
Sums over a whole bucket are no sign of that: in a deep network they are those of a few parameters near its end, which
hardly depend on the data. So each parameter's own counts alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pyddpdiag.analyse.batches import given_batches
from pyddpdiag.analyse.bounds import CLOSE, LEAST_VALUES, TWICE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.settings import training_loader
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.training import Loaded
from pyddpdiag.model.words import count, those

_WHOLE: Final = ("RandomSampler", "SequentialSampler", "WeightedRandomSampler")
"""torch's samplers that divide nothing."""


@dataclass(frozen=True)
class _Same:
    """Ranks whose gradients are the same."""

    ranks: tuple[int, ...]
    buckets: int
    steps: tuple[int, ...]
    exact: bool


def _look(view: RunView) -> Iterator[Finding]:
    given = given_batches(view.sidecars)
    alike = list(_groups(view))
    found = [
        _given(view, some, one.marks[some[0]], alike)
        for one in given
        for some in one.same()
        # One that never changes is fixed, as in benchmarks, or all that a loader has.
        if len(set(one.marks[some[0]])) > 1
        or any(0 < (each.length or 0) <= (each.batch_size or 0) for each in _loaders(view, some))
    ]
    # Batches decide where they are known.
    found += [
        _gradients(view, one)
        for one in alike
        if not any(len(known.marks.keys() & set(one.ranks)) > 1 for known in given)
    ]
    yield from sorted(found, key=lambda one: -int(one.evidence["ranks"] or 0))[:1]


def _given(view: RunView, some: tuple[int, ...], marks: Sequence[int], alike: Sequence[_Same]) -> Finding:
    """By what the ranks were given."""
    watched = view.watched
    looked_at = np.unique(watched.rank[np.isfinite(watched.level) & (watched.reference != 0)])
    same = any(set(some) <= set(one.ranks) for one in alike)
    differ = not same and len(np.intersect1d(looked_at, some)) > 1
    return _finding(
        view,
        some,
        f"each of the {count(len(marks), 'batch', 'batches')} that were compared was the same on them"
        + (", though their gradients differ, as those of dropout do" if differ else ""),
        error=bool(_loaders(view, some)) and not differ,
        sure=True,
        evidence={"batches": len(marks), "gradients_alike": None if not (same or differ) else int(same)},
    )


def _gradients(view: RunView, found: _Same) -> Finding:
    """By what they made of it."""
    passes = len(found.steps)
    how = "equal to the last bit" if found.exact else "equal but for rounding"
    return _finding(
        view,
        found.ranks,
        f"the gradients of all parameters were {how} before they were averaged, in all "
        f"{count(passes, 'pass', 'passes')} that were looked at",
        error=False,
        sure=found.exact and passes > TWICE,
        evidence={"passes": passes, "all_reduces": found.buckets, "equal_bits": int(found.exact)},
        since_step=found.steps[0],
    )


def _finding(
    view: RunView,
    some: Sequence[int],
    sign: str,
    *,
    error: bool,
    sure: bool,
    evidence: Mapping[str, Any],
    since_step: int | None = None,
) -> Finding:
    who = those(some, view.run.world_size)
    why, advice = _why(view, some)
    return Finding(
        kind="same_data",
        severity="error" if error else "warning",
        message=f"{who} train on the same data: {sign}. {len(some)} ranks do the work of one{why}.",
        confidence="high" if sure else "medium",
        since_step=since_step,
        cost_ms=None,  # it costs no time, but the work of all ranks but one
        evidence={**evidence, "ranks": len(some)},
        change_mind="The ranks get the same batch on purpose, as in a benchmark with fixed data. Or a sum over the "
        "batch, printed on each rank, differs.",
        advice=advice,
    )


def _groups(view: RunView) -> Iterator[_Same]:
    """The ranks of each process group whose gradients were the same in all passes of which each parameter's is known.

    A gradient of zero, as in a part of the network that is dead or not used, would be alike on any data.
    """
    watched = view.watched
    bucket = watched.reference != 0
    unknown = bucket & ~np.isfinite(watched.level)
    rows: dict[int, dict[int, dict[int, int]]] = {}
    for row in np.flatnonzero(bucket & ~np.isin(watched.step, watched.step[unknown])).tolist():
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
    if len(steps) < TWICE or int(watched.elements[first].sum()) < LEAST_VALUES * len(steps):
        return
    # One that does not depend on the data is the same in each step.
    norms = {
        int(one): watched.sum_squares[first][watched.reference[first] == one]
        for one in watched.reference[first]
    }
    if all(np.ptp(of_bucket) <= CLOSE * of_bucket.max() for of_bucket in norms.values()):
        return
    values = {
        rank: np.stack([watched.sum_squares[rows], watched.absolute_maximum[rows], watched.level[rows]])
        for rank, rows in places.items()
    }
    # Ranks with the same gradients are neighbours in the order of any of these numbers.
    sets: list[list[int]] = []
    for rank in sorted(values, key=lambda each: (float(values[each][0, 0]), each)):
        if sets and _close(values[sets[-1][0]], values[rank]):
            sets[-1].append(rank)
        else:
            sets.append([rank])
    for same in sets:
        if len(same) > 1:
            exact = all(np.array_equal(values[same[0]], values[rank]) for rank in same)
            yield _Same(tuple(sorted(same)), len(common), steps, exact)


def _close(one: Float64, other: Float64) -> bool:
    return np.allclose(one[:2], other[:2], rtol=CLOSE, atol=0) and np.allclose(
        one[2], other[2], rtol=0, atol=CLOSE
    )


def _why(view: RunView, which: Sequence[int]) -> tuple[str, str]:
    """What is known of the loader, and the line to paste."""
    split = (
        "Give each rank its own part: DataLoader(dataset, batch_size=..., "
        "sampler=DistributedSampler(dataset, shuffle=True)), and sampler.set_epoch(epoch) in each epoch."
    )
    known = _loaders(view, which)
    if not known:
        return "", (
            f"{split} An IterableDataset has to choose by itself: itertools.islice(samples, dist.get_rank(), None, "
            "dist.get_world_size()). Batches that the script makes itself: seed them with the rank."
        )
    if not known[0].distributed:
        if known[0].sampler not in _WHOLE:
            return f"; the loader's {known[0].sampler} is no DistributedSampler", (
                f"Look at what {known[0].sampler} and the data set give each rank. {split}"
            )
        return f"; the loader's {known[0].sampler} gives every rank all of the data", split
    if len({one.rank for one in known}) < len(known) and known[0].rank is not None:
        return (
            f"; the {known[0].sampler} gives each of them the part of rank {known[0].rank}",
            "DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank()), or without both, "
            "which are the default.",
        )
    return "", "Look at what the data set returns: each rank must get other samples."


def _loaders(view: RunView, which: Sequence[int]) -> list[Loaded]:
    loaders = [training_loader(view.sidecars[rank]) for rank in which]
    return [one for one in loaders if one is not None]


CHECK = Check(("same_data",), _look, rests_on="records")
