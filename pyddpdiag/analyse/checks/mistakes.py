"""Mistakes of a script that the ranks' sidecars show: most cost no time, the model learns less or something else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from pyddpdiag.analyse.bounds import LARGE_SHARE, LEAST_STEPS, MOST, NEARLY_ALL
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.saves import shared_files
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.clearing import Clearing
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.modes import SURE_LOOKS, Mode
from pyddpdiag.model.training import Training
from pyddpdiag.model.words import at, count, listed, milliseconds, ranks, times, verb

_CLEARED: Final = {
    "kept": (
        "each step uses the gradients of earlier steps again: in {times} of the {steps} steps that were looked at, no "
        "backward pass began without gradients that an earlier step had used",
        "The script keeps a part of the gradients on purpose, as a momentum of its own.",
        "Call optimizer.zero_grad() in each step: after optimizer.step(), or before the first backward pass.",
    ),
    "lost": (
        "gradients that passes under no_sync() were to accumulate are thrown away: in {times} of the {steps} steps "
        "that were looked at, each backward pass began without gradients, so only the last one counts",
        "The script reads the gradients of those passes, or keeps them elsewhere, before it clears them.",
        "Call optimizer.zero_grad() only after optimizer.step(), and not before each backward pass.",
    ),
}


def _sizes(view: RunView) -> Iterator[Finding]:
    sizes = sorted({header.world_size for header in view.headers})
    if len(sizes) < 2:
        return
    said = listed((f"rank {header.rank}: {header.world_size}" for header in view.headers), 4)
    yield Finding(
        kind="world_size_differs",
        severity="error",
        message=f"the ranks disagree about the world size ({said}).",
        confidence="certain",
        evidence={"smallest": sizes[0], "largest": sizes[-1]},
        change_mind="The traces belong to different runs.",
        advice="Start every rank with the same world size: the first collective hangs otherwise.",
    )


def _cleared(view: RunView) -> Iterator[Finding]:
    """Never between the optimizer's steps, or between passes that accumulate."""
    seen = [
        (getattr(one, name), one, stepped, name)
        for sidecar in view.sidecars.values()
        for module, one in sidecar.training.clearing.items()
        for name in _CLEARED
        if one.steps >= LEAST_STEPS and getattr(one, name) >= NEARLY_ALL * one.steps
        for stepped in sidecar.training.stepped
        if stepped.module == module
    ]
    if not seen:
        return
    often, one, stepped, name = max(seen, key=lambda each: each[0])
    said, mind, advice = _CLEARED[name]
    at = f"; {stepped.optimizer} steps at {stepped.line}" if stepped.line else ""
    yield Finding(
        kind="gradients_cleared",
        severity="warning",
        message=f"{said.format(times=often, steps=one.steps)}{at}.",
        confidence="high",
        where=stepped.line,
        evidence={
            "steps_looked_at": one.steps,
            "steps_with_older_gradients": one.kept,
            "steps_of_last_pass": one.lost,
        },
        change_mind=mind,
        advice=advice,
    )


def _splits(view: RunView) -> Iterator[Finding]:
    """By the loaders that all ranks have alike: a sampler divides what is not the same data on each."""
    picked: dict[tuple[object, ...], dict[int, int]] = {}
    for rank, sidecar in view.sidecars.items():
        loaders = [*sidecar.training.loaded, *(each.loader for each in sidecar.training.evaluated)]
        for one in loaders:
            if one.distributed and one.picked is not None and one.replicas == view.run.world_size:
                key = one.sampler, one.shuffle, one.seed, one.length, one.batch_size
                picked.setdefault(key, {}).setdefault(rank, one.picked)
    found = [
        (key, by_rank)
        for key, by_rank in picked.items()
        if len(by_rank) == view.run.world_size and len(set(by_rank.values())) > 1
    ]
    if not found:
        return
    (sampler, *_), by_rank = found[0]
    yield Finding(
        kind="different_splits",
        severity="error",
        message=f"{sampler} divides other samples on each rank: the Subset that it is for (random_split makes some) "
        "holds others there. So some samples are trained on twice in an epoch and some never, and what one rank "
        "validates on, another one trains on.",
        confidence="high",
        since_step=0,
        evidence={"loaders": len(found), "splits": len(set(by_rank.values())), "ranks": len(by_rank)},
        change_mind="Each rank has data of its own, and another sampler would do.",
        advice="Split alike on all ranks: random_split(data, lengths, generator=torch.Generator().manual_seed(0)).",
    )


def _epochs(view: RunView) -> Iterator[Finding]:
    """Only of samplers that shuffle: without, the order is the same on purpose."""
    stale = [
        (one.epochs, rank, one)
        for rank, sidecar in view.sidecars.items()
        for one in sidecar.training.loaded
        if one.distributed and one.shuffle and one.epochs > 1 and one.distinct == 1
    ]
    if not stale:
        return
    epochs, _, one = max(stale, key=lambda entry: entry[0])
    yield Finding(
        kind="epoch_not_set",
        severity="warning",
        message=f"{one.sampler}.set_epoch was never called: it gave the same order of samples, and each rank the same "
        f"samples, in all {epochs} epochs.",
        confidence="high",
        since_step=0,
        evidence={
            "epochs": epochs,
            "distinct_epochs": one.distinct,
            "samples_per_epoch": one.length,
            "ranks": len({rank for _, rank, _ in stale}),
        },
        change_mind="The same order in each epoch is meant, or the data set shuffles by itself.",
        advice="for epoch in range(epochs): sampler.set_epoch(epoch), before the loop over the loader.",
    )


def _modes(view: RunView) -> Iterator[Finding]:
    """As a rule nobody called `train()` after an evaluation."""
    modes = [(rank, one) for rank, sidecar in view.sidecars.items() for one in sidecar.training.modes]
    left = [
        (rank, one) for rank, one in modes if one.since_looks >= SURE_LOOKS and (one.dropouts or one.norms)
    ]
    if not left:
        return
    # A module that never was in training mode may be meant so, as one with frozen statistics.
    forgotten = any(one.before for _, one in left)
    left = [(rank, one) for rank, one in left if one.before or not forgotten]
    worst = max((one for _, one in left), key=lambda one: one.dropouts + one.norms)
    same = {rank: one for rank, one in left if one.module == worst.module}
    whose, since = sorted(same), min(one.since_step or 0 for one in same.values())
    alone = any(one.module == worst.module and one.looks and not one.since_looks for _, one in modes)
    when = f"since step {since} at the latest" if forgotten else "from the first step on"
    yield Finding(
        kind="left_in_eval",
        severity="warning" if forgotten or alone else "note",
        message=f"{ranks(whose)} {verb(whose, 'trains', 'train')} in evaluation mode {when}: {_without(worst)}.",
        confidence="high" if forgotten or alone else "medium",
        rank=whose[0] if alone and len(whose) == 1 else None,
        since_step=since,
        evidence={
            "ranks": len(whose),
            "looks_in_eval": worst.since_looks,
            "looks_before": worst.before,
            "dropout_layers": worst.dropouts,
            "normalisation_layers": worst.norms,
        },
        change_mind="The model is fine-tuned with its statistics frozen and without dropout on purpose.",
        advice="model.train() at the start of each epoch: an evaluation before it called model.eval()."
        if forgotten
        else "model.train() before the first step: a loaded model may be in evaluation mode (from_pretrained).",
    )


def _without(one: Mode) -> str:
    parts = []
    if one.dropouts:
        parts.append(
            f"{count(one.dropouts, 'dropout layer')} {'drops' if one.dropouts == 1 else 'drop'} nothing"
        )
    if one.norms:
        uses = "uses its" if one.norms == 1 else "use their"
        parts.append(
            f"{count(one.norms, 'normalisation layer')} {uses} running statistics and no longer the batch's"
        )
    return ", and ".join(parts)


def _checkpoints(view: RunView) -> Iterator[Finding]:
    """Several ranks save into one file: at the same time, which damages it, or one after the other, for nothing."""
    found = shared_files(view.sidecars, {header.rank: header.clock_identity for header in view.headers})
    if not found:
        return
    worst = found[0]
    more = "" if len(found) == 1 else f"; and into {count(len(found) - 1, 'more file')} likewise"
    result = (
        f"{worst.at_once} of {times(worst.known)} while another rank did: the file may hold a mixture of what they "
        "wrote, and not load"
        if worst.at_once
        else f"{times(worst.times)} in all, one after the other: the last one replaces what the others wrote"
    )
    yield Finding(
        kind="same_checkpoint",
        severity="warning" if worst.at_once else "note",
        message=f"{ranks(worst.ranks)} save into the same file {worst.name}{at(worst.where)}, {result}{more}.",
        confidence="high",
        where=worst.where or None,
        evidence={
            "ranks": len(worst.ranks),
            "saves": worst.times,
            "saves_at_once": worst.at_once,
            "saves_with_times": worst.known,
            "files": len(found),
        },
        change_mind="The ranks hold a lock of their own while they save.",
        advice="Save on one rank: if torch.distributed.get_rank() == 0: torch.save(...). DDP keeps the weights of all "
        "ranks equal. torch.distributed.barrier() behind it, before another rank loads the file. What differs between "
        'ranks goes into a file of each: f"state_{rank}.pt".',
    )


def _no_sync(view: RunView) -> Iterator[Finding]:
    found = _passes(view)
    if found is None:
        return
    module, passes, steps = found
    exposed = view.exposure.cost_ms
    saves = (passes - 1) / passes * exposed if math.isfinite(exposed) else None
    worth = saves is not None and view.exposure.is_worth(saves)
    looks = [one.training.in_no_sync.get(module, (0, 0)) for one in view.sidecars.values()]
    looked, inside = (sum(pair[place] for pair in looks) for place in (0, 1))
    around_backward = looked > 0 and inside >= LARGE_SHARE * looked
    cleared = [one.training.clearing.get(module, Clearing()) for one in view.sidecars.values()]
    dropped = any(one.steps >= LEAST_STEPS and one.dropped >= MOST * one.steps for one in cleared)
    said = f"gradients are averaged {passes} times for each step of the optimizer, and once would do"
    if around_backward:
        said += ": no_sync() is around backward only, and DDP decides in forward whether a pass is averaged"
    if dropped:
        said += "; the gradients of some of these passes are cleared before any optimizer uses them"
    if saves is not None:
        said += f"; the passes before the last cost about {milliseconds(saves)} per step"
    yield Finding(
        kind="missing_no_sync",
        severity="warning" if worth else "note",
        message=f"{said}.",
        confidence="high" if around_backward or passes <= 64 else "medium",
        since_step=0,
        cost_ms=saves,
        evidence={
            "passes_per_optimizer_step": passes,
            "optimizer_steps": steps,
            "exposed_ms": exposed if math.isfinite(exposed) else None,
            "passes_looked_at": looked,
            "passes_in_no_sync": inside,
        },
        change_mind="The passes between two steps of the optimizer do not accumulate: the script zeroes the gradients "
        "in between, or uses each average (SAM, gradient penalties).",
        advice=view.advice.accumulate(passes)
        + (
            ". A pass through the module that trains another one (a generator, through its discriminator) needs no "
            "gradients of it: ddp.requires_grad_(False), and ddp.module(x), until that pass is over."
            if dropped
            else ""
        ),
    )


def _passes(view: RunView) -> tuple[int, int, int] | None:
    """A module, its usual number of passes for one step of its optimizers, if more than one, and the steps."""
    found = []
    for sidecar in view.sidecars.values():
        for one in sidecar.training.stepped:
            steps = sum(number for passes, number in one.passes.items() if passes)
            if one.module is None or steps < LEAST_STEPS:
                continue
            passes, often = max(one.passes.items(), key=lambda entry: entry[1])
            if passes > 1 and often >= MOST * steps and not _begins_fresh(sidecar.training, one.module):
                found.append((passes, one.module, one.steps))
    if not found:
        return None
    passes, module, steps = min(found)
    return module, passes, steps


def _begins_fresh(training: Training, module: int) -> bool:
    """Whether the script zeroes the gradients before each pass, so that none accumulate: each average is used."""
    looked, fresh = training.fresh.get(module, (0, 0))
    return looked > 0 and fresh >= NEARLY_ALL * looked


CHECKS = tuple(
    Check((kind,), look, rests_on="records")
    for kind, look in (
        ("world_size_differs", _sizes),
        ("gradients_cleared", _cleared),
        ("different_splits", _splits),
        ("epoch_not_set", _epochs),
        ("left_in_eval", _modes),
        ("same_checkpoint", _checkpoints),
        ("missing_no_sync", _no_sync),
    )
)
