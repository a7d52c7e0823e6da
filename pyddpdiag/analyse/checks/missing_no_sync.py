"""Gradients that accumulate over several passes are averaged in each of them: all but the last in vain."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pyddpdiag.analyse.bounds import LARGE_SHARE, LEAST_STEPS, MOST, NEARLY_ALL
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.clearing import Clearing
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.training import Training
from pyddpdiag.model.words import milliseconds


def _look(view: RunView) -> Iterator[Finding]:
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


CHECK = Check(("missing_no_sync",), _look, rests_on="records")
