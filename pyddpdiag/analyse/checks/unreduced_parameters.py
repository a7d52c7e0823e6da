"""Optimizers step with gradients that nobody reduced: each rank trains these parameters alone, or all of its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyddpdiag.analyse.bounds import TWICE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.training import Unreduced
from pyddpdiag.model.words import at, count, listed, size

_Fate = Literal["differ", "equal", "not known"]


@dataclass(frozen=True)
class _Fates:
    """Whether these parameters are equal on all ranks, when last compared; `norms` by rank of one that differs."""

    fate: _Fate
    name: str = ""
    norms: Mapping[int, float] | None = None


def _look(view: RunView) -> Iterator[Finding]:
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


CHECK = Check(("unreduced_parameters", "not_reduced"), _look, rests_on="records")
