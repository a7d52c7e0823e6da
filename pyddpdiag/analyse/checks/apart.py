"""Each rank trains on its own: parameters with gradients that nobody reduced; or all train on the same data.

Where batches cannot be read, gradients may suggest it: those of all parameters are the same before they are averaged.
Sums over a whole bucket are no sign of that: in a deep network they are those of a few parameters near its end, which
hardly depend on the data. So each parameter's own counts alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from pyddpdiag.analyse.batches import given_batches
from pyddpdiag.analyse.bounds import CLOSE, LEAST_VALUES, TWICE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.settings import training_loader
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.training import Loaded, Unreduced
from pyddpdiag.model.words import at, count, listed, size, those

_WHOLE: Final = ("RandomSampler", "SequentialSampler", "WeightedRandomSampler")
"""torch's samplers that divide nothing."""


@dataclass(frozen=True)
class _Same:
    """Ranks whose gradients are the same."""

    ranks: tuple[int, ...]
    buckets: int
    steps: tuple[int, ...]
    exact: bool


def _same(view: RunView) -> Iterator[Finding]:
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
    return _of_data(
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
    return _of_data(
        view,
        found.ranks,
        f"the gradients of all parameters were {how} before they were averaged, in all "
        f"{count(passes, 'pass', 'passes')} that were looked at",
        error=False,
        sure=found.exact and passes > TWICE,
        evidence={"passes": passes, "all_reduces": found.buckets, "equal_bits": int(found.exact)},
        since_step=found.steps[0],
    )


def _of_data(
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
    why, advice = _loaded(view, some)
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


def _loaded(view: RunView, which: Sequence[int]) -> tuple[str, str]:
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


_Fate = Literal["differ", "equal", "not known"]


@dataclass(frozen=True)
class _Fates:
    """Whether these parameters are equal on all ranks, when last compared; `norms` by rank of one that differs."""

    fate: _Fate
    name: str = ""
    norms: Mapping[int, float] | None = None


def _unreduced(view: RunView) -> Iterator[Finding]:
    sets: dict[tuple[int | None, bool, tuple[str, ...], int, bool], dict[int, Unreduced]] = {}
    for rank, sidecar in view.sidecars.items():
        for one in sidecar.training.unreduced:
            key = one.module, one.all_of_it, one.parameters, one.count, one.reduced_before
            sets.setdefault(key, {})[rank] = one
    alone: list[Finding] = []
    for key, by_rank in sets.items():
        if len(by_rank) > 1 and max(one.times for one in by_rank.values()) >= TWICE:
            fates = _fates(by_rank)
            if key[0] is None and not view.buckets:
                alone += _not_reduced(view, by_rank, fates)
                continue
            # Of what belongs to no module that is recorded, only the weights say that nobody averages it.
            if fates.fate == "differ" or (fates.fate == "not known" and key[0] is not None):
                yield _finding(by_rank, fates)
    # Of several optimizers, that of most parameters.
    yield from sorted(alone, key=lambda one: -int(one.evidence["bytes"] or 0))[:1]


def _not_reduced(view: RunView, by_rank: Mapping[int, Unreduced], fates: _Fates) -> Iterator[Finding]:
    """Not where the ranks exchanged as many bytes as the parameters have: that is one average of them."""
    one = min(by_rank.values(), key=lambda each: each.first_step)
    if fates.fate != "differ" or view.exchanged_bytes >= one.bytes:
        return
    named = ", ".join(f"{norm:.6g} on rank {rank}" for rank, norm in list((fates.norms or {}).items())[:4])
    yield Finding(
        kind="not_reduced",
        severity="error",
        message=f"each of {len(by_rank)} ranks trains a model of its own: its optimizer steps{at(one.where)} with "
        f"{count(one.count, 'parameter')} of {size(one.bytes)}, and nobody averages their gradients. No "
        f"DistributedDataParallel module was made, and each rank exchanged {size(int(view.exchanged_bytes))} with the "
        f"others. The weights differ (norm of one parameter: {named}).",
        confidence="high",
        where=one.where or None,
        since_step=one.first_step,
        evidence={
            "parameters": one.count,
            "bytes": one.bytes,
            "exchanged_bytes": int(view.exchanged_bytes),
            "ranks": len(by_rank),
            "times_seen": max(each.times for each in by_rank.values()),
            **{f"norm_rank_{rank}": norm for rank, norm in list((fates.norms or {}).items())[:8]},
        },
        change_mind="Each rank trains a model of its own on purpose, as in a search of settings; or the weights are "
        "averaged after the end of what was recorded.",
        advice="Wrap the model before the optimizer gets its parameters: net = DistributedDataParallel(net), on CPUs, "
        "too (without device_ids); then call net(batch), and give each rank its part of the data.",
    )


def _finding(by_rank: Mapping[int, Unreduced], fates: _Fates) -> Finding:
    one = min(by_rank.values(), key=lambda each: each.first_step)
    names = listed((f"'{name}'" for name in one.parameters), 3 if one.count > 4 else 4)
    if one.count > len(one.parameters):
        names += f" ({one.count} in all)"
    apart = ""
    if fates.norms:
        named = ", ".join(f"{norm:.6g} on rank {rank}" for rank, norm in list(fates.norms.items())[:4])
        apart = f" They differ between the ranks by now (norm of '{fates.name}': {named})."
    sure = fates.fate == "differ" and one.module is not None
    why, advice = _why(one)
    return Finding(
        kind="unreduced_parameters",
        severity="error" if one.module is not None else "warning",
        message=f"the optimizer steps with {count(one.count, 'parameter')} whose gradients were not averaged, from "
        f"step {one.first_step} on: {names}. {why}{apart}",
        confidence="certain" if sure else "medium",
        parameter=one.parameters[0] if one.parameters else None,
        since_step=one.first_step,
        evidence={
            "parameters": one.count,
            "times_seen": max(each.times for each in by_rank.values()),
            "last_step": max(each.last_step for each in by_rank.values()),
            "weights_differ": int(fates.fate == "differ"),
            **{f"norm_rank_{rank}": norm for rank, norm in list((fates.norms or {}).items())[:8]},
        },
        change_mind="The ranks average these gradients or weights themselves, later than was looked at; or each rank "
        "trains its own on purpose.",
        advice=advice,
    )


def _why(one: Unreduced) -> tuple[str, str]:
    """What is known of the reason, and what to do."""
    last = "only the last pass before optimizer.step() outside of ddp.no_sync()"
    if one.reduced_before:
        return (
            "Passes under no_sync() came after the one that was averaged: each rank added gradients of its own to the "
            "average.",
            f"Leave {last}: its average covers what all of them have added up.",
        )
    if one.all_of_it:
        return (
            "The module had no synchronising backward pass before these steps: its forward ran as ddp.module(...), or "
            "every pass was in no_sync().",
            f"Call ddp(batch) and not ddp.module(batch), and leave {last}.",
        )
    if one.module is None:
        return (
            "They are in no DistributedDataParallel module that is recorded.",
            "Wrap them, too: head = DistributedDataParallel(head); or make them a part of the wrapped model.",
        )
    return (
        "They are in no bucket: they did not require gradients when DistributedDataParallel was made, or they came "
        "later.",
        "Change the model first, then wrap it: model.head = ...; parameter.requires_grad_(True); ddp = "
        "DistributedDataParallel(model). To unfreeze later, wrap the model.module again and make a new optimizer.",
    )


def _fates(by_rank: Mapping[int, Unreduced]) -> _Fates:
    """What the weights say. Ranks that average weights now and then have them equal again some time."""
    common = sorted(set.intersection(*(set(one.marks) for one in by_rank.values())))
    if _became_equal([one.trail for one in by_rank.values()]):
        return _Fates("equal")
    differed = False
    last = _Fates("not known")
    for number in common:
        if number < TWICE:
            continue
        here = _compared({rank: one.marks[number] for rank, one in by_rank.items()}, by_rank)
        if here.fate == "equal" and differed:
            return here
        differed = differed or here.fate == "differ"
        last = here if here.fate != "not known" else last
    return last


def _became_equal(trails: Sequence[Sequence[int]]) -> bool:
    """Whether all of them were equal some time after they had differed."""
    differed = False
    for values in list(zip(*trails, strict=False))[TWICE - 1 :]:
        if 0 in values:
            continue
        if len(set(values)) > 1:
            differed = True
        elif differed:
            return True
    return False


def _compared(
    marks: Mapping[int, tuple[tuple[int, float] | None, ...]], by_rank: Mapping[int, Unreduced]
) -> _Fates:
    names = next(iter(by_rank.values())).parameters
    seen = False
    for place in range(min(len(names), *(len(some) for some in marks.values()))):
        here = {rank: mark for rank, some in marks.items() if (mark := some[place]) is not None}
        if len(here) < len(marks):
            continue
        seen = True
        if len({bits for bits, _ in here.values()}) > 1:
            return _Fates("differ", names[place], {rank: norm for rank, (_, norm) in here.items()})
    return _Fates("equal" if seen else "not known")


CHECKS = (
    Check(("unreduced_parameters", "not_reduced"), _unreduced, rests_on="records"),
    Check(("same_data",), _same, rests_on="records"),
)
